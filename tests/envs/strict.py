"""Environments that raise an error for a forbidden action."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Strict(gymnasium.Env[Any, Any]):
    """A random action of three is forbidden; the mask is in `info`."""

    action_space: spaces.Space[Any] = spaces.Discrete(3)
    observation_space: spaces.Space[Any] = spaces.Box(0, 1, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        self.draw()
        return self.observe(), self.info()

    def draw(self) -> None:
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0

    def observe(self) -> Any:
        return self.mask.astype(np.float32)

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask}

    def check(self, action: Any) -> None:
        if not self.mask[action]:
            raise ValueError(f"illegal action {action}")

    def step(self, action: Any) -> Any:
        self.check(action)
        self.age += 1
        self.draw()
        return self.observe(), 1.0, self.age == 7, False, self.info()


class Inside(Strict):
    """The mask is a part of the observation."""

    observation_space = spaces.Dict({"age": spaces.Discrete(9), "action_mask": spaces.MultiBinary(3)})

    def observe(self) -> Any:
        return {"age": self.age, "action_mask": self.mask}

    def info(self) -> dict[str, Any]:
        return {}


class Several(Strict):
    """Two dials and a lever in a tuple; a random position of each dial is forbidden."""

    action_space = spaces.Tuple((spaces.Box(0, 9, (2,)), spaces.MultiDiscrete([3, 2], start=[5, 1])))
    observation_space = spaces.Box(0, 1, (5,), np.float32)

    def draw(self) -> None:
        self.mask = np.ones(5, np.int8)
        self.mask[[self.np_random.integers(3), 3 + self.np_random.integers(2)]] = 0

    def check(self, action: Any) -> None:
        assert self.action_space.contains(action)
        first, second = action[1] - [5, 1]
        if not (self.mask[first] and self.mask[3 + second]):
            raise ValueError(f"illegal action {action}")


class Hiding(Strict):
    """The next mask depends on a counter that cannot be captured."""

    steps = itertools.count()

    def draw(self) -> None:
        self.mask = np.ones(3, np.int8)
        self.mask[next(Hiding.steps) * 7 % 11 % 3] = 0
