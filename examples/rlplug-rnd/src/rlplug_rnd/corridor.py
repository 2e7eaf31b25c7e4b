"""A corridor with its only reward at the far end, which random actions hardly ever reach."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces


class Corridor(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Walk from the left end to the right end (action 1 moves right, 0 left): reward 1 for arriving, else 0.

    The observation is one-hot over 30 places. An episode is truncated after 60 steps; random actions arrive about once
    in a thousand episodes.
    """

    length = 30
    limit = 60

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (self.length,), np.float32)
        self.action_space = spaces.Discrete(2)
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
        self.place = max(0, self.place + (1 if action == 1 else -1))
        self.age += 1
        arrived = self.place == self.length - 1
        return (
            self._observation(),
            float(arrived),
            arrived,
            self.age >= self.limit and not arrived,
            {},
        )

    def _observation(self) -> npt.NDArray[np.float32]:
        observation = np.zeros(self.length, np.float32)
        observation[self.place] = 1
        return observation
