"""Environments whose step takes time: what `scale.py` and `vector.py` measure on.

Those of `scale.py` wait and use no processor, as simulators elsewhere do; the one of `vector.py` computes.
"""

from __future__ import annotations

import time
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array


class Millisecond(Chain):
    """A step of each environment takes a millisecond."""

    seconds: ClassVar[float] = 0.001

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        time.sleep(self.seconds * self.num_envs)
        return super().move(action)


class TenMilliseconds(Millisecond):
    """A step of each environment takes ten milliseconds."""

    seconds: ClassVar[float] = 0.01


class Busy(gymnasium.Env[Array, int]):
    """A step computes for a millisecond of processor time, whoever else computes meanwhile."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)
    seconds: ClassVar[float] = 0.001

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Array, dict[str, object]]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, object]]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return np.zeros(4, np.float32), 1.0, False, False, {}
