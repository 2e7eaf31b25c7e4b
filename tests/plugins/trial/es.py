"""An evolution strategy (Salimans et al., 2017, arXiv:1703.03864): each row plays episodes with its own weights.

It inherits nothing from rlplug, uses no gradients and no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core import Config, Context
from rlplug_core.clock import Clock
from rlplug_core.config.options import Count, Positive
from rlplug_core.errors import NonFinite, UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, Spec, State, Step


@dataclass(frozen=True)
class ESConfig(Config):
    """Options of the evolution strategy."""

    episodes: Count = 32  # per update
    sigma: Positive = 0.3  # deviation of the perturbations
    learning_rate: Positive = 0.5  # step size


@dataclass
class Episodes:
    """Complete episodes of one generation: the seed of each perturbation, and the undiscounted return."""

    seeds: Array
    returns: Array


class EpisodeBuffer:
    """Sums rewards until episodes end; episodes that started with older weights are dropped."""

    def __init__(self, episodes: int) -> None:
        self.episodes = episodes
        self.totals: dict[str, Array] = {}
        self.seeds: dict[str, list[int]] = {}
        self.generation = 0
        self.finished: list[list[float]] = []

    def add(self, step: Step, source: int = 0) -> None:
        key = str(source)  # rows of several actors are not mixed: each has its own sums
        total = self.totals.setdefault(key, np.zeros(len(step.valid)))
        total += np.where(step.valid, step.reward, 0)
        for row in np.flatnonzero((step.terminated | step.truncated) & step.valid):
            if step.extras["generation"][row] == self.generation:
                self.finished.append([int(step.extras["seed"][row]), float(total[row])])
            total[row] = 0

    def batches(self, clock: Clock) -> Iterator[Episodes]:
        if len(self.finished) >= self.episodes:
            seeds, returns = zip(*self.finished, strict=True)
            self.finished = []
            self.generation = self.generation + 1
            yield Episodes(np.array(seeds, np.int64), np.array(returns))

    def feedback(self, batch: Episodes, result: Result) -> None:
        """It has no priorities."""

    def state_dict(self) -> State:
        totals = {key: total.copy() for key, total in self.totals.items()}
        return {"totals": totals, "generation": self.generation, "finished": [list(pair) for pair in self.finished]}

    def load_state_dict(self, state: State) -> None:
        self.totals = {key: total.copy() for key, total in state["totals"].items()}
        self.generation = state["generation"]
        self.finished = [list(pair) for pair in state["finished"]]


class Mean:
    """The mean of all perturbed weights: a linear map from observations to actions."""

    def __init__(self, spec: Spec) -> None:
        if not isinstance(spec.obs, spaces.Box) or not isinstance(spec.action, spaces.Discrete | spaces.Box):
            raise UsageError(f"ES needs Box observations and Discrete or Box actions, not {spec.obs} and {spec.action}")
        self.action = spec.action
        self.inputs = int(np.prod(spec.obs.shape)) + 1
        shape = spec.action.shape or ()
        self.outputs = int(spec.action.n) if isinstance(spec.action, spaces.Discrete) else int(np.prod(shape))
        self.theta = np.zeros((self.inputs, self.outputs), np.float32)
        self.generation = np.zeros((), np.int64)

    def noise(self, seed: int) -> Array:
        return np.random.default_rng(seed).standard_normal(self.theta.shape, dtype=np.float32)

    def act(self, obs: Obs, theta: Array) -> Array:
        """Actions of rows [N] under weights [N, inputs, outputs] or common ones."""
        seen = np.asarray(obs, np.float32).reshape(len(obs), -1)
        seen = np.concatenate([seen, np.ones((len(seen), 1), np.float32)], 1)
        outputs = np.matmul(seen[:, None], theta)[:, 0]
        if isinstance(self.action, spaces.Discrete):
            return outputs.argmax(1) + self.action.start
        return np.tanh(outputs).reshape(-1, *self.action.shape)


class ESAgent:
    """Draws a perturbation for each episode of each row, and adds its seed to the extras."""

    def __init__(self, mean: Mean, sigma: float, seeds: Seeds) -> None:
        self.mean = mean
        self.sigma = sigma
        self.generator = seeds.generator()

    def weights(self) -> State:
        return {"theta": self.mean.theta, "generation": self.mean.generation}

    def initial(self, num_envs: int) -> RecurrentState:
        return {"seed": np.zeros(num_envs, np.int64), "generation": np.zeros(num_envs, np.int64)}

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        if not explore:
            return Act(self.mean.act(obs, self.mean.theta), recurrent_state)
        fresh = self.generator.integers(0, 2**31, len(is_first)) if is_first.any() else recurrent_state["seed"]
        seed = np.where(is_first, fresh, recurrent_state["seed"])
        generation = np.where(is_first, self.mean.generation, recurrent_state["generation"])
        noise = np.stack([self.mean.noise(int(number)) for number in seed])
        extras = {"seed": seed, "generation": generation}
        return Act(self.mean.act(obs, self.mean.theta + self.sigma * noise), extras, extras)

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


class ES:
    """Moves the mean towards the perturbations with the highest returns."""

    Config = ESConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)

    def __init__(self, spec: Spec, config: ESConfig, context: Context) -> None:
        self.config = config
        self.seeds = context.seeds
        self.mean = Mean(spec)

    def agent(self, rank: int = 0, ranks: int = 1) -> ESAgent:
        return ESAgent(self.mean, self.config.sigma, self.seeds.child("agent", rank))

    def buffer(self) -> EpisodeBuffer:
        return EpisodeBuffer(self.config.episodes)

    def update(self, batch: Episodes, clock: Clock) -> Result:
        if not np.isfinite(batch.returns).all():
            raise NonFinite(f"an episode returned {batch.returns.sum():g}")
        score = (batch.returns - batch.returns.mean()) / (batch.returns.std() + 1e-8)
        step = sum(share * self.mean.noise(int(seed)) for share, seed in zip(score, batch.seeds, strict=True))
        self.mean.theta += self.config.learning_rate / len(score) * np.asarray(step, np.float32)
        self.mean.generation += 1
        return Result({"loss/return_spread": float(batch.returns.std())})

    def state_dict(self) -> State:
        return {"theta": self.mean.theta.copy(), "generation": self.mean.generation.copy()}

    def load_state_dict(self, state: State) -> None:
        self.mean.theta[...] = state["theta"]
        self.mean.generation[...] = state["generation"]
