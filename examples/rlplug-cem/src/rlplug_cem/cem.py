"""The cross-entropy method on linear policies (Szita and Lőrincz, 2006, doi:10.1162/neco.2006.18.12.2936)."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces

import rlplug_core as rl


@dataclass(frozen=True)
class CEMConfig(rl.Config):
    # episodes between two updates of the distribution, each with its own parameters
    population: rl.Count = 32
    elite: rl.Count = 6  # number of best episodes that the distribution is fitted to
    # added to the standard deviation of the elite; falls to 0 over the run
    noise: rl.NonNegative = 0.1


class LinearPolicy(torch.nn.Module):
    """The policy of the mean parameters, for exports: observations to actions."""

    mean: torch.Tensor

    def __init__(self, mean: rl.Array, spec: rl.Spec) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean.copy()))
        self.shape = spec.action.shape

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        outputs = obs.flatten(1) @ self.mean[1:] + self.mean[0]
        return outputs.unflatten(-1, self.shape) if self.shape else outputs.argmax(-1)


class PerturbedAgent:
    """Draws parameters at the start of an episode and keeps them to its end; uses the mean without exploration."""

    def __init__(
        self, mean: rl.Array, std: rl.Array, spec: rl.Spec, generator: np.random.Generator
    ) -> None:
        self.mean = mean
        self.std = std
        self.spec = spec
        self.generator = generator

    def weights(self) -> rl.State:
        return {"mean": self.mean}

    def initial(self, num_envs: int) -> rl.Array:
        return np.tile(self.mean, (num_envs, 1, 1))

    def act(
        self,
        obs: rl.Array,
        is_first: rl.Array,
        recurrent_state: rl.Array,
        clock: rl.Clock,
        explore: bool = True,
    ) -> rl.Act:
        if explore and is_first.any():
            noise = self.generator.standard_normal(recurrent_state.shape, np.float32)
            new = self.mean + self.std * noise
            recurrent_state = np.where(is_first[:, None, None], new, recurrent_state)
        inputs = np.insert(obs.reshape(len(obs), 1, -1), 0, 1, -1)  # the 1 is for the bias
        outputs = (inputs @ (recurrent_state if explore else self.mean[None]))[:, 0]
        shape = self.spec.action.shape
        action = outputs.reshape(-1, *shape) if shape else outputs.argmax(-1)
        return rl.Act(action, recurrent_state, {"parameters": recurrent_state})

    def exported(self) -> LinearPolicy:
        return LinearPolicy(self.mean, self.spec)

    def state_dict(self) -> rl.State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: rl.State) -> None:
        self.generator.bit_generator.state = state["generator"]


class CEM:
    """A learner without gradients and without a base class."""

    Config = CEMConfig
    runners = ("sync",)
    actions = ("Discrete", "Box")

    def __init__(self, spec: rl.Spec, config: CEMConfig, context: rl.Context) -> None:
        if not isinstance(spec.obs, spaces.Box) or not isinstance(
            spec.action, spaces.Discrete | spaces.Box
        ):
            raise rl.UsageError(
                f"cem needs Box observations and Discrete or Box actions, not {spec.obs} and {spec.action}"
            )
        self.spec = spec
        self.config = config
        self.seeds = context.seeds
        shape = (spaces.flatdim(spec.obs) + 1, spaces.flatdim(spec.action))
        self.mean = np.zeros(shape, np.float32)
        self.std = np.ones_like(self.mean)
        self.returns = np.zeros(1)
        self.finished = list[tuple[float, rl.Array]]()

    def agent(self, rank: int = 0, ranks: int = 1) -> PerturbedAgent:
        generator = self.seeds.child("agent", rank).generator()
        return PerturbedAgent(self.mean, self.std, self.spec, generator)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(steps=32)

    def update(self, batch: rl.Rollout, clock: rl.Clock) -> rl.Result:
        for t, over in enumerate((batch.terminated | batch.truncated) & (batch.weight > 0)):
            before = np.where(batch.is_first[t], 0.0, self.returns)
            self.returns = before + batch.weight[t] * batch.reward[t]
            for n in np.flatnonzero(over):
                self.finished.append((self.returns[n], batch.extras["parameters"][t, n].copy()))
        if len(self.finished) < self.config.population:
            return rl.Result({})
        if not np.isfinite([total for total, _ in self.finished]).all():
            raise rl.NonFinite("the return of an episode is not finite")
        elite = sorted(self.finished, key=lambda episode: -episode[0])[: self.config.elite]
        parameters = np.stack([values for _, values in elite])
        self.finished = []
        self.mean[:] = parameters.mean(0)
        self.std[:] = parameters.std(0) + self.config.noise * (1 - clock.progress)
        return rl.Result({"cem/elite_return": elite[-1][0], "cem/std": float(self.std.mean())})

    def state_dict(self) -> rl.State:
        return {name: getattr(self, name).copy() for name in ("mean", "std", "returns", "finished")}

    def load_state_dict(self, state: rl.State) -> None:
        self.mean[:] = state["mean"]
        self.std[:] = state["std"]
        self.returns = state["returns"]
        self.finished = list(state["finished"])
