"""Environments that each test one ability of a learner: true successors, odd observations, large rewards.

And an algorithm that reports on its own process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlplug_algos.value.nstep_q import NStepQ
from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.testing.envs import Chain, Continuous, Vector
from rlplug_core.types import MASK, Array, Obs, Result


class Mixed(Chain):
    """The chain as a dictionary: the place as a number from 3 on, a constant nested vector, and a mask.

    Left is legal only on even places, so place 0 is never reached.
    """

    obs = spaces.Dict(
        {
            "place": spaces.Discrete(7, start=3),
            "further": spaces.Dict({"vector": spaces.Box(0, 1, (2,), np.float32)}),
            MASK: spaces.MultiBinary(2),
        }
    )

    def observe(self) -> Obs:
        place = self.state["place"]
        legal = np.stack([place % 2 == 0, np.ones_like(place)], -1).astype(np.int8)
        return {"place": place + 4, "further": {"vector": np.zeros((self.num_envs, 2), np.float32)}, MASK: legal}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        assert ((action == 1) | (self.state["place"] % 2 == 0)).all(), "a forbidden action was taken"
        return super().move(action)


class Late(Vector):
    """No reward for five steps, then a reward of 1 forever, truncated after ten steps.

    The observation is min(age, 5) as one-hot. Its value is γ^(5 - age) / (1 - γ), but only if truncations bootstrap
    from the last observation, not from the start of the next episode.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)

    def observe(self) -> Array:
        return np.eye(6, dtype=np.float32)[np.minimum(self.state["length"], 5)]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        late = self.state["length"] >= 5
        return late.astype(np.float64), np.zeros(self.num_envs, np.bool_), self.state["length"] + 1 >= 10


class Shifted(Late):
    """The same age, counted from 5: observation 0 does not exist."""

    obs = spaces.Discrete(6, start=5)

    def observe(self) -> Array:
        return 5 + np.minimum(self.state["length"], 5).astype(np.int64)


class Scalar(Continuous):
    """The action is a number, not a vector of one."""

    action = spaces.Box(-1, 1, (), np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        assert action.shape == (self.num_envs,)
        return super().move(action[:, None])


class Far(Vector):
    """One step per episode, reward 1 for the right action: 1 if x in [-1, 1] is above 0, else 0. Observes 1000 (3 + x).

    All observations look the same to units that saturate.
    """

    obs = spaces.Box(2000, 4000, (1,), np.float32)

    def open(self, rows: Array) -> None:
        seen = self.state.setdefault("x", np.zeros(self.num_envs))
        seen[rows] = self.generator.uniform(-1, 1, self.num_envs)[rows]

    def observe(self) -> Array:
        return (1000 * (3 + self.state["x"][:, None])).astype(np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        right = action == (self.state["x"] > 0)
        return right.astype(np.float64), np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)


class FarContinuous(Far):
    """The same x; the reward is -(a - x / 2)²."""

    action = spaces.Box(-1, 1, (1,), np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        taken = np.clip(action[:, 0], -1, 1)
        reward = -np.square(taken - self.state["x"] / 2)
        return reward, np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)


class Rich(Late):
    """Late with rewards of 1000."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = super().move(action)
        return 1000 * reward, terminated, truncated


class ReportsTarget(NStepQ):
    """Reports whether the target network has changed since this worker was built."""

    def build(self) -> None:
        super().build()
        self.began = [parameter.clone() for parameter in self.target_network.parameters()]

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        pairs = zip(self.began, self.target_network.parameters(), strict=True)
        moved = torch.tensor(float(any(not torch.equal(old, new) for old, new in pairs)))
        return replace(result, metrics={**result.metrics, "target/moved": moved})


class Repeated(Continuous):
    """The same x three times, so that there is a future to discount."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, _, truncated = super().move(action)
        return reward, self.state["length"] + 1 >= 3, truncated
