"""`Flatten`: every observation as one vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from rlplug_core.config.options import Config
from rlplug_core.errors import UsageError
from rlplug_core.plugins.transform import Transform, with_obs
from rlplug_core.protocols import Env
from rlplug_core.types import MASK, Array, Obs, Space, Timestep, first_leaf
from rlplug_envs.spaces import masked


@dataclass(frozen=True)
class _Part:
    """The place of one array of an observation: its keys, its columns, and for one-hot the result of `_starts`."""

    keys: tuple[str, ...]
    columns: slice
    starts: Array | None

    def write(self, obs: Obs, out: Array) -> None:
        """Put the values [N, ...] into their columns of `out` [N, width]."""
        for key in self.keys:
            obs = obs[key]
        target = out[:, self.columns]
        num_envs = len(out)
        if self.starts is None:
            target[...] = obs.reshape(num_envs, -1)
            return
        target[...] = 0
        places = (np.asarray(obs).reshape(num_envs, -1) + self.starts).astype(np.int64)
        np.put_along_axis(target, places, 1, axis=1)


class Flatten(Transform):
    """Observations of any kind as one vector of floats; Discrete parts become one-hot.

    A mask of allowed actions stays separate. Parts of a Dict are in the order of their names.
    """

    def __init__(self, env: Env, config: Config) -> None:
        super().__init__(env)
        space = env.spec.obs
        if env.spec.kinds:
            raise UsageError(
                f"flatten makes one vector, and the agents of {env.spec.id} have different spaces; leave it out"
            )
        self._masked = masked(space)
        leaves = list(_leaves(space))
        self._parts: list[_Part] = []
        self._width = 0
        for keys, leaf in leaves:
            end = self._width + _width(leaf)
            self._parts.append(_Part(keys, slice(self._width, end), _starts(leaf)))
            self._width = end
        bounds = zip(*(_bounds(leaf) for _, leaf in leaves), strict=True)
        low, high = (np.concatenate(side) for side in bounds)
        flat: Space = spaces.Box(low, high, dtype=np.float32)
        if isinstance(space, spaces.Dict) and self._masked:
            flat = spaces.Dict({"obs": flat, MASK: space[MASK]})
        self.spec = replace(env.spec, obs=flat)
        self._now, self._next = np.zeros((2, env.spec.num_envs, self._width), np.float32)

    def reset(self, seed: int) -> Timestep:
        timestep = self.env.reset(seed)
        obs = self._flatten(timestep.obs, self._next_array())
        return with_obs(timestep, obs, obs)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        obs = final = self._flatten(timestep.obs, self._next_array())
        if timestep.final_obs is not timestep.obs:
            final = self._flatten(timestep.final_obs, np.empty_like(self._now))
        return with_obs(timestep, obs, final)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        obs = super().observe(obs, is_first)
        return self._flatten(obs, np.empty((len(first_leaf(obs)), self._width), np.float32))

    def _next_array(self) -> Array:
        """Return the array for the next observations."""
        self._now, self._next = self._next, self._now
        return self._now

    def _flatten(self, obs: Obs, out: Array) -> Obs:
        for part in self._parts:
            part.write(obs, out)
        return {"obs": out, MASK: obs[MASK]} if self._masked else out


def _leaves(
    space: Space,
    keys: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], Space]]:
    """Return the arrays of an observation and the keys that lead to them; without the mask of allowed actions."""
    if isinstance(space, spaces.Dict):
        for name in sorted(space.spaces.keys() - ({MASK} if not keys else set())):
            yield from _leaves(space[name], (*keys, name))
    else:
        yield keys, space


def _starts(space: Space) -> Array | None:
    """Return the numbers to add to values to get their columns; None if the space is not one-hot in the vector."""
    if isinstance(space, spaces.Discrete):
        return np.array([-space.start])
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.reshape(-1)
        return np.cumsum(sizes) - sizes - space.start.reshape(-1)
    return None


def _width(space: Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return (
        int(space.nvec.sum())
        if isinstance(space, spaces.MultiDiscrete)
        else int(np.prod(space.shape or ()))
    )


def _bounds(space: Space) -> tuple[Array, Array]:
    """Return the smallest and largest values of the columns of a space."""
    if isinstance(space, spaces.Box):
        return space.low.reshape(-1).astype(np.float32), space.high.reshape(-1).astype(np.float32)
    return np.zeros(_width(space), np.float32), np.ones(_width(space), np.float32)
