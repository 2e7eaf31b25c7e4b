"""Tiny n-step Q-learning with a replay buffer of plain lists; the base of right and wrong algorithms for the kit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config, Count, Positive
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Obs, RecurrentState, Result, State, Step

#: Fields of a step that the replay keeps, [N, ...] each.
FIELDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "valid")


@dataclass(frozen=True)
class TinyQConfig(Config):
    """Options of tiny Q-learning."""

    n_step: Count = 2  # rewards in a target
    batch_size: Count = 32  # samples of an update
    starts: Count = 64  # env steps before the first update
    learning_rate: Positive = 0.003  # step size


class Epsilon:
    """Takes a random action one time in five."""

    def __init__(self, net: nn.Module, seeds: Seeds, actions: int) -> None:
        self.net = net
        self.generator = seeds.generator()
        self.actions = actions

    def weights(self) -> State:
        return dict(self.net.state_dict())

    def initial(self, num_envs: int) -> None:
        return None

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        with torch.no_grad():
            best = self.net(torch.from_numpy(np.asarray(obs, np.float32))).argmax(1).numpy()
        if not explore:
            return Act(best)
        chance = self.generator.random(len(best))
        other = self.generator.integers(0, self.actions, len(best))
        return Act(np.where(chance < 0.2, other, best))

    def state_dict(self) -> State:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]


class ListReplay:
    """Stores the newest 500 vector steps; samples starts with a full window of `n_step` steps."""

    def __init__(self, config: TinyQConfig, seeds: Seeds) -> None:
        self.config = config
        self.generator = seeds.child("replay").generator()
        self.steps: list[dict[str, Array]] = []
        self.added = self.due = 0

    def add(self, step: Step, source: int = 0) -> None:
        self.steps.append({name: np.array(getattr(step, name)) for name in FIELDS})
        del self.steps[:-500]
        self.added += int(step.valid.sum())
        self.due += self.added >= self.config.starts

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        while self.due:
            self.due -= 1
            yield self.draw()

    def num_starts(self) -> int:
        """Return the number of steps that may start a window."""
        return len(self.steps) - self.config.n_step + 1

    def draw(self) -> Transitions:
        size = self.config.batch_size
        rows = len(self.steps[0]["reward"])
        pairs = zip(
            self.generator.integers(0, self.num_starts(), size), self.generator.integers(0, rows, size), strict=True
        )
        windows = [self.window(int(t), int(n)) for t, n in pairs]
        tensors = [torch.from_numpy(np.array(column)) for column in zip(*windows, strict=True)]
        obs, action, reward, discount, next_obs, weight = tensors
        return Transitions(
            weight.float(),
            None,
            obs.float(),
            action,
            reward.float(),
            discount.float(),
            next_obs.float(),
            torch.zeros(size),
            {},
        )

    def window(self, t: int, n: int) -> tuple[Any, ...]:
        """Return observation, action, reward sum, discount, successor and weight of the window that starts there."""
        first = self.steps[t]
        total = 0.0
        discount = 1.0
        k = t
        for k in range(t, t + self.config.n_step):
            step = self.steps[k]
            if step["valid"][n]:
                total = total + discount * step["reward"][n]
                discount = discount * 0.9
            if self.ends(step, n):
                break
        successor = self.successor(k, n)
        discount *= 1 - self.steps[k]["terminated"][n]
        return first["obs"][n], first["action"][n], total, discount, successor, first["valid"][n]

    def ends(self, step: dict[str, Array], n: int) -> bool:
        return bool(step["terminated"][n] or step["truncated"][n])

    def successor(self, k: int, n: int) -> Array:
        """Return the successor of the last step of a window; skips absent rows within an episode."""
        while k + 1 < len(self.steps) and not self.ends(self.steps[k], n) and not self.steps[k + 1]["valid"][n]:
            k += 1
        next_obs: Array = self.steps[k]["next_obs"][n]
        return next_obs

    def feedback(self, batch: Transitions, result: Result) -> None:
        pass

    def state_dict(self) -> State:
        return {
            "steps": [dict(step) for step in self.steps],
            "added": self.added,
            "due": self.due,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        self.steps = [{name: np.array(array) for name, array in step.items()} for step in state["steps"]]
        self.added = state["added"]
        self.due = state["due"]
        self.generator.bit_generator.state = state["generator"]


class TinyQ(Algorithm[Transitions]):
    """Q-learning with 16 hidden units; nothing is wrong with it."""

    Config: ClassVar[type[Config]] = TinyQConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: TinyQConfig

    def build(self) -> None:
        if len(self.spec.obs.shape or ()) != 1:
            raise UsageError("tiny Q-learning needs vectors")
        inputs = int(self.spec.obs.shape[0])  # type: ignore[index]
        outputs = int(self.spec.action.n)  # type: ignore[attr-defined]
        self.net = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))
        self.outputs = outputs
        self.optim = self.optimizer("q", [self.net], learning_rate=self.config.learning_rate)

    def agent(self, rank: int = 0, ranks: int = 1) -> Epsilon:
        return Epsilon(self.net, self.agent_seeds(rank), self.outputs)

    def buffer(self) -> ListReplay:
        return ListReplay(self.config, self.seeds)

    def target(self, batch: Transitions) -> Tensor:
        with torch.no_grad():
            return batch.reward + batch.discount * self.net(batch.next_obs).max(1).values

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        value = self.net(batch.obs).gather(1, batch.action[:, None])[:, 0]
        loss = batch.mean((value - self.target(batch)).square())
        return Result({"loss/q": loss.detach(), "loss/gradient_norm": self.optim.minimize(loss, clock)})
