"""Wrappers about the length of episodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from rlplug_core.config.options import Config, Count
from rlplug_core.errors import UsageError
from rlplug_core.plugins.transform import Transform, with_obs
from rlplug_core.protocols import Env
from rlplug_core.types import MASK, Array, Obs, Space, State, Timestep


@dataclass(frozen=True)
class TimeLimitConfig(Config):
    steps: Count = 1000  # after which an episode is truncated


class TimeLimit(Transform):
    """Episodes cut after a number of steps, unless they end before.

    The environment below cuts them, because only it can reset single rows and close their statistics.
    """

    Config = TimeLimitConfig
    takes_tensors = True

    def __init__(self, env: Env, config: TimeLimitConfig) -> None:
        super().__init__(env)
        self.limit(config.steps)
        self.spec = replace(env.spec, limit=min(config.steps, env.spec.limit or config.steps))


@dataclass(frozen=True)
class TimeFeatureConfig(Config):
    steps: Count = 1000  # length of an episode, at which the share is 1


class TimeFeature(Transform):
    """The elapsed share of an episode as one more feature (Pardo et al., 2018, arXiv:1712.00378).

    Without it, states that differ in their remaining time look the same. Observations must be vectors of floats; put
    `flatten` before it for others.
    """

    Config = TimeFeatureConfig

    def __init__(self, env: Env, config: TimeFeatureConfig) -> None:
        super().__init__(env)
        self.spec = replace(env.spec, obs=self._extend_space(env.spec.obs, env.spec.id))
        self._share = np.float32(1 / config.steps)
        num_envs = env.spec.num_envs
        self._age = np.zeros(num_envs, np.int64)
        self._now, self._next = np.zeros((2, num_envs, self._width + 1), np.float32)

    def _extend_space(self, space: Space, id: str) -> Space:
        """Return the space with one more number; store the width of `space` and whether it has a mask."""
        inner = (
            space["obs"]
            if isinstance(space, spaces.Dict) and space.keys() == {"obs", MASK}
            else space
        )
        if not isinstance(inner, spaces.Box) or len(inner.shape) != 1 or inner.dtype != np.float32:
            raise UsageError(
                f"time-feature: the observations of {id} are not vectors of floats; put flatten before it: "
                "--wrap flatten --wrap time-feature"
            )
        self._width = inner.shape[0]
        self._masked = inner is not space
        longer = spaces.Box(
            np.append(inner.low, np.float32(0)),
            np.append(inner.high, np.float32(1)),
            dtype=np.float32,
        )
        return (
            spaces.Dict({"obs": longer, MASK: space[MASK]})
            if isinstance(space, spaces.Dict)
            else longer
        )

    def reset(self, seed: int) -> Timestep:
        timestep = self.env.reset(seed)
        self._age[:] = 0
        obs = self._append_age(timestep.obs, self._next_array())
        return with_obs(timestep, obs, obs)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        self._age += timestep.valid  # an agent that waits for its turn does not get older
        final = None
        if timestep.final_obs is not timestep.obs:
            final = self._append_age(timestep.final_obs, np.empty_like(self._now))
        if np.count_nonzero(timestep.is_first):
            self._age[timestep.is_first] = 0
        obs = self._append_age(timestep.obs, self._next_array())
        return with_obs(timestep, obs, obs if final is None else final)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        obs = super().observe(obs, is_first)
        self._age = np.where(is_first, 0, self._age + 1)
        if len(self._age) != len(obs["obs"] if self._masked else obs):
            raise UsageError(
                "time-feature counts the steps of one episode: give the policy one observation at a time"
            )
        return self._append_age(obs, np.empty((len(self._age), self._width + 1), np.float32))

    def _next_array(self) -> Array:
        """Return the array for the next observations."""
        self._now, self._next = self._next, self._now
        return self._now

    def _append_age(self, obs: Obs, out: Array) -> Obs:
        """Return `obs` with the elapsed share of each episode as the last column, written into `out` [N, width + 1]."""
        out[:, :-1] = obs["obs"] if self._masked else obs
        out[:, -1] = np.minimum(self._age * self._share, 1)
        return {"obs": out, MASK: obs[MASK]} if self._masked else out

    def state_dict(self) -> State:
        return super().state_dict() | {"age": self._age.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._age[:] = state["age"]
