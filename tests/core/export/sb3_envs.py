"""Environments of the models of Stable-Baselines3: images, and dictionaries with an image; and observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def observations(space: Any, rows: int = 1000) -> Any:
    """Draw observations [rows, ...] of a space, the same in `make_sb3.py` and in tests."""
    generator = np.random.default_rng(7)
    if hasattr(space, "spaces"):
        return {key: observations(part, rows) for key, part in space.spaces.items()}
    if space.dtype == np.uint8:
        brightest = generator.integers(1, 256, (rows, 1, 1, space.shape[2]))
        return generator.integers(0, brightest, (rows, *space.shape), endpoint=True).astype(np.uint8)
    if hasattr(space, "n"):
        return generator.integers(0, space.n, rows)
    scale = np.minimum(space.high, 3.0)
    return (generator.uniform(-1, 1, (rows, *scale.shape)) * scale).astype(space.dtype)


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
    """Images with colors last."""

    observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = spaces.Discrete(4)


class Parts(Random):
    """A dictionary of an image, numbers and a class."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "arm": spaces.Box(-2, 5, (4,), np.float32),
            "goal": spaces.Discrete(3),
        }
    )
    action_space = spaces.Box(-2, 2, (2,), np.float32)


class Places(Random):
    """A dictionary of numbers, with classes as actions."""

    observation_space = spaces.Dict(
        {"here": spaces.Box(-5, 5, (2,), np.float32), "there": spaces.Box(-5, 5, (2, 2), np.float64)}
    )
    action_space = spaces.MultiDiscrete([3, 4])
