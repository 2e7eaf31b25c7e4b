"""Wrappers that change the rewards of agents, but not reported returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlplug_core.config.options import Config
from rlplug_core.errors import BadConfig
from rlplug_core.plugins.transform import Transform, with_reward
from rlplug_core.protocols import Env
from rlplug_core.types import Array, Timestep


@dataclass(frozen=True)
class ClipRewardConfig(Config):
    low: float = -1.0  # the smallest reward
    high: float = 1.0  # the largest reward


class ClipReward(Transform):
    """Rewards clipped to a range, so that errors have a similar size in all games (Mnih et al., 2015)."""

    Config = ClipRewardConfig

    @staticmethod
    def in_evaluation(config: object) -> None:
        """Leave it out: no policy sees rewards, and the returns of evaluations are the environment's own."""

    def __init__(self, env: Env, config: ClipRewardConfig) -> None:
        super().__init__(env)
        if not config.low < config.high:
            raise BadConfig(
                f"clip-reward: low is {config.low:g}, which is not below high, {config.high:g}"
            )
        self.spec = env.spec.without_goals("clip-reward")
        self._low = np.float32(config.low)
        self._high = np.float32(config.high)
        self._now, self._next = np.zeros((2, env.spec.num_envs), np.float32)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        self._now, self._next = self._next, self._now
        np.maximum(timestep.reward, self._low, out=self._now)
        return with_reward(timestep, np.minimum(self._now, self._high, out=self._now))

    def reward(self, reward: Array) -> Array:
        return super().reward(reward).clip(self._low, self._high)


@dataclass(frozen=True)
class ScaleRewardConfig(Config):
    factor: float = 0.1  # every reward is multiplied by it


class ScaleReward(Transform):
    """Rewards multiplied by a constant."""

    Config = ScaleRewardConfig

    @staticmethod
    def in_evaluation(config: object) -> None:
        """Leave it out: no policy sees rewards, and the returns of evaluations are the environment's own."""

    def __init__(self, env: Env, config: ScaleRewardConfig) -> None:
        super().__init__(env)
        self.spec = env.spec.without_goals("scale-reward")
        self._factor = np.float32(config.factor)
        self._now, self._next = np.zeros((2, env.spec.num_envs), np.float32)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        self._now, self._next = self._next, self._now
        return with_reward(timestep, np.multiply(timestep.reward, self._factor, out=self._now))

    def reward(self, reward: Array) -> Array:
        return super().reward(reward) * self._factor
