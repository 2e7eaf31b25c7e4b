"""A wrapper that normalizes observations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from rlplug_core.arrays import check_shape
from rlplug_core.config.options import Config, Positive
from rlplug_core.errors import UsageError
from rlplug_core.plugins.transform import Transform, told, with_obs
from rlplug_core.protocols import Env
from rlplug_core.types import MASK, Array, Obs, State, Timestep
from rlplug_envs.spaces import masked


@dataclass(frozen=True)
class NormalizeObsConfig(Config):
    clip_obs: Positive = 10.0  # maximum deviations from the mean; larger observations are clipped


class NormalizeObs(Transform):
    """Subtracts the running mean from observations and divides by the running deviation, as SB3's VecNormalize does.

    A buffer keeps observations as they were scaled at their step; with `--net.normalize-obs` the network scales them
    when it uses them, which suits replay better. Evaluations and loaded policies use the moments of training.
    Moments are merged with the formula of Chan, Golub and LeVeque (1979).
    """

    Config = NormalizeObsConfig

    def __init__(self, env: Env, config: NormalizeObsConfig) -> None:
        super().__init__(env)
        space = env.spec.obs
        if not isinstance(space, spaces.Box) or space.dtype != np.float32:
            reason = "are not floats; put flatten before it: --wrap flatten --wrap normalize-obs"
            if masked(space):
                reason = (
                    f"hold an {MASK}, which it does not support; leave it out: --net.normalize-obs"
                )
            raise UsageError(f"normalize-obs: the observations of {env.spec.id} {reason}")
        self._clip = config.clip_obs
        self._frozen = False
        self._mean = np.zeros(space.shape)
        self._squares = np.zeros(space.shape)
        self._count = 0
        self._update_scale()
        self._last_scaled = np.zeros((env.spec.num_envs, *space.shape), np.float32)
        self.spec = replace(
            env.spec, obs=spaces.Box(-config.clip_obs, config.clip_obs, space.shape, np.float32)
        )

    def reset(self, seed: int) -> Timestep:
        timestep = self.env.reset(seed)
        rows = timestep.is_first if timestep.turn is None else timestep.turn
        self._update_stats(timestep.obs[rows])
        obs = self._last_scaled = self._normalize(timestep.obs)
        return with_obs(timestep, obs, obs)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        earlier = self._last_scaled
        rows = told(timestep)
        self._update_stats(timestep.obs if rows is None else timestep.obs[rows])
        obs = self._last_scaled = self._scale_rows(timestep.obs, rows, earlier)
        ended = timestep.final_obs is not timestep.obs
        final = (
            self._scale_rows(timestep.final_obs, None if rows is None else timestep.valid, earlier)
            if ended
            else obs
        )
        return with_obs(timestep, obs, final)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        return self._normalize(super().observe(obs, is_first))

    def _update_stats(self, obs: Array) -> None:
        """Merge the moments of [N, ...] into the running ones."""
        if self._frozen or not len(obs):
            return
        count = len(obs)
        mean = obs.mean(0, np.float64)
        difference = mean - self._mean
        total = self._count + count
        self._squares += np.square(obs - mean).sum(0) + np.square(difference) * (
            self._count * count / total
        )
        self._mean = self._mean + difference * (count / total)
        self._count = total
        self._update_scale()

    def _update_scale(self) -> None:
        """Compute the numbers to subtract and to multiply by."""
        deviation = np.sqrt(self._squares / max(1, self._count) + 1e-8)
        self._center = self._mean.astype(np.float32)
        self._scale = (1 / deviation).astype(np.float32)

    def _scale_rows(
        self,
        obs: Array,
        rows: Array | None,
        earlier: Array,
    ) -> Array:
        """Return `obs` [N, ...] scaled; rows outside of the mask `rows` keep their `earlier` scaled observations."""
        scaled = self._normalize(obs)
        if rows is not None:
            scaled[~rows] = earlier[~rows]
        return scaled

    def _normalize(self, obs: Array) -> Array:
        scaled = (obs - self._center) * self._scale
        return np.clip(scaled, -self._clip, self._clip, out=scaled)

    def learned(self) -> State:
        return super().learned() | self._moments()

    def freeze(self, state: State) -> None:
        super().freeze(state)
        self._load_moments(state)
        self._frozen = True

    def state_dict(self) -> State:
        return super().state_dict() | self._moments() | {"held": self._last_scaled.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._load_moments(state)
        self._last_scaled = check_shape(
            np.array(state.get("held", self._last_scaled)), self._last_scaled
        )

    def _moments(self) -> State:
        return {"mean": self._mean.copy(), "squares": self._squares.copy(), "count": self._count}

    def _load_moments(self, state: State) -> None:
        self._mean = check_shape(np.array(state["mean"]), self._mean)
        self._squares = check_shape(np.array(state["squares"]), self._squares)
        self._count = state["count"]
        self._update_scale()
