"""Environments that models of Stable-Baselines3 were trained on: images, and dictionaries with an image."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Random(gymnasium.Env[Any, Any]):
    """Random observations; episodes of ten steps."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), float(np.mean(action)), self.steps == 10, False, {}


class Pictures(Random):
    """Bytes of pictures with the colors last."""

    observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = spaces.Discrete(4)


class Parts(Random):
    """A dictionary: a picture, numbers, a class."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "arm": spaces.Box(-2, 5, (4,), np.float32),
            "goal": spaces.Discrete(3),
        }
    )
    action_space = spaces.Box(-2, 2, (2,), np.float32)


class Places(Random):
    """A dictionary of numbers, and classes as actions."""

    observation_space = spaces.Dict(
        {"here": spaces.Box(-5, 5, (2,), np.float32), "there": spaces.Box(-5, 5, (2, 2), np.float64)}
    )
    action_space = spaces.MultiDiscrete([3, 4])
