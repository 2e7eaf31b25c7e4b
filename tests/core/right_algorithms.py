"""Right algorithms of many kinds; the conformance kit must accept all: tables, models, phases, ensembles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlplug_core.arrays import like_inputs, to_host
from rlplug_core.batches import Rollout, Transitions
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config, Count, Positive
from rlplug_core.context import Context
from rlplug_core.errors import NonFinite, UsageError
from rlplug_core.learning.estimators import gae
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, Spec, State
from tests.core.tiny_q import ListReplay, TinyQ
from tests.core.wrong_algorithms import Tiny


@dataclass(frozen=True)
class TableConfig(Config):
    """Options of tables."""

    step_size: Positive = 0.5  # step size towards the target
    planning: Count = 8  # imagined steps for each real step


class TableAgent:
    """Takes the best action of the place, or one time in five a random one."""

    def __init__(self, table: Array, generator: np.random.Generator) -> None:
        self.table = table
        self.generator = generator

    def weights(self) -> State:
        return {"table": self.table}

    def initial(self, num_envs: int) -> None:
        return None

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        best = self.table[obs.argmax(1)].argmax(1)
        if not explore:
            return Act(best)
        chance = self.generator.random(len(best))
        random = self.generator.integers(0, self.table.shape[1], len(best))
        return Act(np.where(chance < 0.2, random, best))

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


class ZeroTable:
    """Tabular Q-learning from zeros in numpy, without a base class (Watkins, 1989)."""

    Config = TableConfig
    runners = ("sync",)
    actions = ("Discrete",)

    def __init__(self, spec: Spec, config: TableConfig, context: Context) -> None:
        if not isinstance(spec.obs, spaces.Box) or len(spec.obs.shape) != 1 or spec.obs.shape[0] < 2:
            raise UsageError("a table needs one-hot places")
        if not isinstance(spec.action, spaces.Discrete):
            raise UsageError("a table needs Discrete actions")
        self.config = config
        self.seeds = context.seeds
        self.table = np.zeros((spec.obs.shape[0], int(spec.action.n)))

    def agent(self, rank: int = 0, ranks: int = 1) -> TableAgent:
        return TableAgent(self.table, self.seeds.child("agent", rank).generator())

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(4)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        if not np.isfinite(batch.reward[batch.weight > 0]).all():
            raise NonFinite("a reward is not finite")
        errors = [self.learn_one(*transition) for transition in self.transitions(batch)]
        return Result({"loss/error": float(np.mean(errors)) if errors else 0.0})

    def transitions(self, batch: Rollout) -> Iterator[tuple[Any, ...]]:
        """Yield place, action, reward, discount, next place and weight of every valid transition."""
        _, successor = batch.values(lambda obs: obs.argmax(1).astype(np.float32))
        for t, n in np.argwhere(batch.weight > 0):
            end = batch.terminated[t, n] or batch.truncated[t, n]
            later = [u for u in range(t + 1, len(batch.weight)) if batch.weight[u, n] > 0]
            absent = not end and t + 1 < len(batch.weight) and batch.weight[t + 1, n] == 0
            if absent and not later:
                continue
            after = batch.obs[later[0], n].argmax() if absent else successor[t, n]
            yield (
                int(batch.obs[t, n].argmax()),
                int(batch.action[t, n]),
                float(batch.reward[t, n]),
                0.9 * (1 - batch.terminated[t, n]),
                int(after),
                float(batch.weight[t, n]),
            )

    def learn_one(self, place: int, action: int, reward: float, discount: float, after: int, weight: float) -> float:
        error = reward + discount * self.table[after].max() - self.table[place, action]
        self.table[place, action] += self.config.step_size * weight * error
        return abs(error)

    def state_dict(self) -> State:
        return {"table": self.table.copy()}

    def load_state_dict(self, state: State) -> None:
        self.table[:] = state["table"]


class Dyna(ZeroTable):
    """Dyna-Q: stores the outcome of every action and learns from it again (Sutton, 1990)."""

    def __init__(self, spec: Spec, config: TableConfig, context: Context) -> None:
        super().__init__(spec, config, context)
        self.model: dict[str, list[float]] = {}
        self.generator = context.seeds.child("planning").generator()

    def update(self, batch: Rollout, clock: Clock) -> Result:
        result = super().update(batch, clock)
        for place, action, *rest in self.transitions(batch):
            self.model[f"{place} {action}"] = [float(number) for number in rest]
            for key in self.generator.choice(sorted(self.model), self.config.planning):
                from_place, with_action = map(int, str(key).split())
                reward, discount, after, weight = self.model[str(key)]
                self.learn_one(from_place, with_action, reward, discount, int(after), weight)
        return result

    def state_dict(self) -> State:
        model = {key: list(numbers) for key, numbers in self.model.items()}
        return {**super().state_dict(), "model": model, "generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.model = {key: list(numbers) for key, numbers in state["model"].items()}
        self.generator.bit_generator.state = state["generator"]


class KeepsRollouts(Tiny):
    """Stores rollouts, including rows without a transition, and learns values from them again every other update.

    As phasic policy gradients do (Cobbe et al., 2021, arXiv:2009.04416).
    """

    def build(self) -> None:
        super().build()
        self.kept: list[dict[str, Any]] = []

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        advantage, target = gae(batch, value, successor, 0.99, 0.95)
        samples = batch.samples(advantage, target, self.device)
        norm = self.optim.minimize(self.loss(samples)[0], clock)
        if not isinstance(samples.obs, dict):
            kept = {"obs": batch.obs[:-1], "target": target, "weight": batch.weight}
            self.kept.append({name: to_host(part).copy() for name, part in kept.items()})
        if len(self.kept) == 2:
            self.auxiliary(clock)
        return Result({"loss/gradient_norm": norm})

    def auxiliary(self, clock: Clock) -> None:
        """Fit values to the stored targets."""
        for rollout in self.kept:
            obs, target, weight = (
                torch.from_numpy(rollout[name]).flatten(0, 1) for name in ("obs", "target", "weight")
            )
            error = torch.where(weight > 0, (self.critic(obs) - target).square(), 0.0)
            self.optim.minimize((weight * error).sum() / (weight > 0).sum().clamp(min=1), clock)
        self.kept = []

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "kept": [dict(rollout) for rollout in self.kept]}

    def set_extra_state(self, state: State) -> None:
        super().set_extra_state(state)
        self.kept = [dict(rollout) for rollout in state["kept"]]


class WorldModel(TinyQ):
    """Stores transitions, including weight 0, and fits a model of the next observation to the valid ones."""

    def build(self) -> None:
        super().build()
        size = int(self.spec.obs.shape[0])  # type: ignore[index]
        self.model = nn.Linear(size, size)
        self.model_optim = self.optimizer("model", [self.model], learning_rate=0.01)
        self.seen: list[dict[str, Any]] = []

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        self.seen.append({"obs": batch.obs, "next_obs": batch.next_obs, "weight": batch.weight * (batch.discount > 0)})
        del self.seen[:-4]
        for previous in self.seen:
            error = (self.model(previous["obs"]) - previous["next_obs"]).square().mean(1)
            weight = previous["weight"]
            self.model_optim.minimize((weight * torch.where(weight > 0, error, 0.0)).sum() / len(weight), clock)
        return super().learn(batch, now, clock)

    def get_extra_state(self) -> State:
        return {**super().get_extra_state(), "seen": [dict(batch) for batch in self.seen]}

    def set_extra_state(self, state: State) -> None:
        super().set_extra_state(state)
        self.seen = [dict(batch) for batch in state["seen"]]


class OldStepsReplay(ListReplay):
    """Samples steps that are at least five vector steps old."""

    def num_starts(self) -> int:
        return len(self.steps) - self.config.n_step - 4

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        return super().batches(clock) if self.num_starts() > 0 else iter(())


class LearnsFromOldSteps(TinyQ):
    def buffer(self) -> ListReplay:
        return OldStepsReplay(self.config, self.seeds)


class PaddingReplay(ListReplay):
    """Fills every batch up with stale samples of weight 0."""

    def draw(self) -> Transitions:
        batch = super().draw()
        weight = batch.weight.clone()
        weight[len(weight) // 2 :] = 0
        return replace(batch, weight=weight, share=None)


class Padded(TinyQ):
    def buffer(self) -> ListReplay:
        return PaddingReplay(self.config, self.seeds)


class Ensemble(TinyQ):
    """Three networks, each trained on a random two thirds of every batch; acts by their mean (Osband et al., 2016)."""

    def build(self) -> None:
        super().build()
        inputs = int(self.spec.obs.shape[0])  # type: ignore[index]
        members = 3
        self.members = nn.ModuleList(nn.Linear(inputs, self.outputs) for _ in range(members))
        self.net = Mean(self.members)
        self.optim = self.optimizer("members", [self.net], learning_rate=self.config.learning_rate)

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        target = self.target(batch)
        total = torch.zeros(())
        for member in self.members:
            mask = torch.from_numpy(self.generator.random(len(target)) < 2 / 3)
            value = member(batch.obs).gather(1, batch.action[:, None])[:, 0]
            total = total + replace(batch, weight=batch.weight * mask, share=None).mean((value - target).square())
        return Result({"loss/q": total.detach(), "loss/gradient_norm": self.optim.minimize(total, clock)})


class Mean(nn.Module):
    """The mean of several networks."""

    def __init__(self, members: nn.ModuleList) -> None:
        super().__init__()
        self.members = members

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.stack([member(obs) for member in self.members]).mean(0)


class SoftmaxAgent(TableAgent):
    """Draws actions from the exponentials of linear preferences."""

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        preference = obs.reshape(len(obs), -1) @ self.table
        if explore:
            preference = preference + self.generator.gumbel(size=preference.shape)
        return Act(preference.argmax(1))


class NumpyOnly(ZeroTable):
    """Linear REINFORCE with returns to go, only in numpy (Williams, 1992)."""

    def __init__(self, spec: Spec, config: TableConfig, context: Context) -> None:
        super().__init__(spec, config, context)
        self.table += 0.01 * context.seeds.child("table").generator().standard_normal(self.table.shape)

    def agent(self, rank: int = 0, ranks: int = 1) -> SoftmaxAgent:
        return SoftmaxAgent(self.table, self.seeds.child("agent", rank).generator())

    def update(self, batch: Rollout, clock: Clock) -> Result:
        valid = batch.weight > 0
        if not np.isfinite(batch.reward[valid]).all():
            raise NonFinite("a reward is not finite")
        running = np.zeros(batch.reward.shape[1])
        gradient = np.zeros_like(self.table)
        for t in range(len(batch.reward) - 1, -1, -1):
            over = batch.terminated[t] | batch.truncated[t]
            running = np.where(valid[t], batch.reward[t] + 0.9 * ~over * running, running)
            for n in np.flatnonzero(valid[t]):
                exponentials = np.exp(batch.obs[t, n] @ self.table)
                score = np.eye(self.table.shape[1])[batch.action[t, n]] - exponentials / exponentials.sum()
                gradient += batch.weight[t, n] * running[n] * np.outer(batch.obs[t, n], score)
        self.table += 0.05 * gradient / max(1, valid.sum())
        return Result({"loss/gradient": float(np.abs(gradient).sum())})


class WholeReturns(Tiny):
    """The first REINFORCE: each action gets the return of its whole episode, including earlier rewards."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        valid = to_host(batch.weight) > 0
        reward = np.where(valid, to_host(batch.reward), 0)
        ends = to_host(batch.terminated) | to_host(batch.truncated)
        sums = np.zeros_like(reward)
        for n in range(reward.shape[1]):
            start = 0
            for t in range(len(reward)):
                if ends[t, n] or t + 1 == len(reward):
                    sums[start : t + 1, n] = reward[start : t + 1, n].sum()
                    start = t + 1
        advantage = like_inputs(torch.from_numpy(sums * valid), batch.reward)
        loss = self.loss(batch.samples(advantage, advantage, self.device))[0]
        return Result({"loss/gradient_norm": self.optim.minimize(loss, clock)})


class ScaledRewards(Tiny):
    """Divides rewards by their running deviation, which is part of its state."""

    def build(self) -> None:
        super().build()
        self.register_buffer("square", torch.ones(()))
        self.register_buffer("rewards", torch.ones(()))

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        valid = to_host(batch.weight) > 0
        reward = np.where(valid, to_host(batch.reward), 0)
        scaled = torch.from_numpy((reward / float((self.square / self.rewards).sqrt())).astype(np.float32))
        result = super().learn(replace(batch, reward=like_inputs(scaled, batch.reward), views=None), now, clock)
        self.square += float(np.square(reward).sum())
        self.rewards += int(valid.sum())
        return result
