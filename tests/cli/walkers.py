"""Environments for films: a square that moves to the right, and one that cannot be rendered."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Walker(gymnasium.Env[Any, Any]):
    """Ends after 5 to 12 steps; draws its position in 41 by 61 pixels."""

    observation_space = spaces.Box(-1, 20, (2,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # the type of Gymnasium

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        self.end = int(self.np_random.integers(5, 13))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1
        return self._observation(), 1.0, self.place >= self.end, False, {"is_success": self.end > 8}

    def render(self) -> Any:
        frame = np.full((41, 61, 3), 255, np.uint8)
        frame[:, 4 * self.place : 4 * self.place + 6] = (200, 30, 30)
        return frame

    def _observation(self) -> Any:
        return np.array([self.place, self.np_random.uniform()], np.float32)


class Invisible(Walker):
    """Cannot be rendered."""

    def render(self) -> Any:
        raise OSError("no graphics library here")
