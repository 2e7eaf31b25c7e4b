"""A corridor with a movable goal that random actions never reach."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces


class Corridor(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Walk from 0 to the goal: reward 1 for arriving, else 0. The action that moves forward differs from place to
    place.

    The observation is one-hot over the places. An episode is truncated after 30 steps.
    """

    length = 20
    limit = 30

    def __init__(self, goal: float = 20.0) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (self.length + 1,), np.float32)
        self.action_space = spaces.Discrete(2)
        #: Distance of the goal; a curriculum may set it between episodes.
        self.goal = goal
        self.place = self.age = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.age = 0
        return self._observation(), {}

    def step(
        self, action: np.int64
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        onward = int(action) == self.place * 5 % 7 % 2
        self.place = max(0, self.place + (1 if onward else -1))
        self.age += 1
        arrived = self.place >= min(self.goal, self.length)
        late = self.age >= self.limit and not arrived
        return self._observation(), float(arrived), arrived, late, {"is_success": arrived}

    def _observation(self) -> npt.NDArray[np.float32]:
        observation = np.zeros(self.length + 1, np.float32)
        observation[self.place] = 1
        return observation
