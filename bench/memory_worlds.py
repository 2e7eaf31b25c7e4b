"""Worlds that need a memory: `rlplug run sac bench/memory_worlds.py:masked_pendulum --memory gru`."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

from rlplug_core.testing.envs import LongRecall


def masked_pendulum() -> gymnasium.Env:
    """Return Pendulum-v1 without the speed in its observations, only the angle's cosine and sine."""
    env = gymnasium.make("Pendulum-v1")
    space = spaces.Box(-1, 1, (2,), np.float32)
    return TransformObservation(env, lambda obs: obs[:2], space)


class BoxRecall(LongRecall):
    """LongRecall with an action in [-1, 1]: its sign is the answer."""

    action = spaces.Box(-1, 1, (1,), np.float32)

    def move(self, action: np.ndarray):
        return super().move((action[:, 0] > 0).astype(np.int64))
