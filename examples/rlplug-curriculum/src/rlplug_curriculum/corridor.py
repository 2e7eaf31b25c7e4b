"""A corridor whose goal may stand anywhere: for those who never get there by chance."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces


class Corridor(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Walk from 0 to the goal (action 1 walks right, 0 left): 1 for arriving, 0 for all else.

    The observation is the place and the goal, in units of the whole length. An episode is cut after 40 steps.
    """

    length = 30.0
    limit = 40

    def __init__(self, goal: float = 30.0) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        #: How far the goal is; a curriculum may set it between episodes.
        self.goal = goal
        self.place = self.age = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.age = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.place += 1 if action == 1 else -1
        self.age += 1
        arrived = self.place >= self.goal
        return (
            self._observation(),
            float(arrived),
            arrived,
            self.age >= self.limit and not arrived,
            {"is_success": arrived},
        )

    def _observation(self) -> npt.NDArray[np.float32]:
        return np.array([self.place / self.length, self.goal / self.length], np.float32)
