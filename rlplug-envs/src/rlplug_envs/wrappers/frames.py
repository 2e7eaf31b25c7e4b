"""`FrameStack`: the last few observations instead of the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from rlplug_core.config.options import Config, Count
from rlplug_core.errors import UsageError
from rlplug_core.plugins.transform import Transform, told, with_obs
from rlplug_core.protocols import Env
from rlplug_core.types import (
    MASK,
    Array,
    Obs,
    Space,
    State,
    Timestep,
    channels_last,
    first_leaf,
    tree_map,
)


@dataclass(frozen=True)
class FrameStackConfig(Config):
    frames: Count = 4  # number of observations that an agent sees at once


class FrameStack(Transform):
    """The last few observations at once, oldest first (Mnih et al., 2015).

    The first observation of an episode fills the stack. Vectors become a longer vector, images get more channels, and
    images without channels become the channels of one. A mask of allowed actions is not changed.
    """

    Config = FrameStackConfig

    def __init__(self, env: Env, config: FrameStackConfig) -> None:
        super().__init__(env)
        self._layouts = _layouts(env.spec.obs, config.frames, env.spec.id)
        # A stack of frames also stacks goals.
        spec = env.spec.without_goals("frame-stack") if config.frames > 1 else env.spec
        self.spec = replace(spec, obs=_stack_space(spec.obs, self._layouts))
        frames = [
            tree_map(lambda layout: layout.allocate(env.spec.num_envs), self._layouts)
            for _ in range(2)
        ]
        # Each is a pair: frames [N, n, ...], and their memory in the shape that agents see.
        self._now, self._next = ((arrays, self._join(arrays)) for arrays in frames)

    def reset(self, seed: int) -> Timestep:
        timestep = self.env.reset(seed)
        obs = self._push(timestep.obs, timestep.is_first)
        return with_obs(timestep, obs, obs)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        rows = told(timestep)
        if timestep.final_obs is timestep.obs:
            obs = self._push(timestep.obs, timestep.is_first, rows)
            return with_obs(timestep, obs, obs)
        frames = tree_map(np.copy, self._now[0])
        _shift_frames(
            frames, self._now[0], timestep.final_obs, None if rows is None else timestep.valid
        )
        final = _with_mask(self._join(frames), timestep.final_obs)
        return with_obs(timestep, self._push(timestep.obs, timestep.is_first, rows), final)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        obs = super().observe(obs, is_first)
        if len(first_leaf(obs)) != self.spec.num_envs:
            raise UsageError(
                "frame-stack remembers one episode: give the policy one observation at a time"
            )
        return tree_map(np.copy, self._push(obs, is_first))

    def _push(
        self,
        obs: Obs,
        is_first: Array,
        rows: Array | None = None,
    ) -> Obs:
        """Return the stack with one more observation of `rows` [N], or copies of it at the start of an episode."""
        self._now, self._next = self._next, self._now
        frames, stack = self._now
        _shift_frames(frames, self._next[0], obs, rows)
        if np.count_nonzero(is_first):

            def fill(array: Array, frame: Array) -> None:
                array[is_first] = frame[is_first][:, None]

            tree_map(fill, frames, obs)
        return _with_mask(stack, obs)

    def _join(self, frames: Obs) -> Obs:
        return tree_map(lambda array, layout: layout.join(array), frames, self._layouts)

    def state_dict(self) -> State:
        return super().state_dict() | {"frames": tree_map(np.ndarray.copy, self._now[0])}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        tree_map(np.copyto, self._now[0], state["frames"])


def _with_mask(stack: Obs, obs: Obs) -> Obs:
    """Return the stack, with the masks of allowed actions that came with the newest observation."""
    if not isinstance(obs, dict):
        return stack
    return {
        name: inner if name == MASK else _with_mask(stack[name], inner)
        for name, inner in obs.items()
    }


def _shift_frames(
    frames: Obs,
    earlier: Obs,
    newest: Obs,
    rows: Array | None,
) -> None:
    """Fill `frames` [N, n, ...] with `newest` after the last frames of `earlier`; rows not in `rows` keep `earlier`."""

    def shift(frames: Array, earlier: Array, newest: Array) -> None:
        frames[:, :-1] = earlier[:, 1:]
        frames[:, -1] = newest
        if rows is not None:
            frames[~rows] = earlier[~rows]

    tree_map(shift, frames, earlier, newest)


@dataclass(frozen=True)
class _Layout:
    """The layout of frames of one array space: `shape` holds them along `axis`, and becomes `joined_shape`."""

    space: spaces.Box
    shape: tuple[int, ...]
    axis: int
    joined_shape: tuple[int, ...]

    @classmethod
    def of(cls, space: spaces.Box, frames: int) -> _Layout:
        shape = space.shape
        if len(shape) == 3 and channels_last(shape):
            return cls(space, (*shape[:2], frames, shape[2]), 2, (*shape[:2], frames * shape[2]))
        joined = (frames * shape[0], *shape[1:]) if len(shape) in (1, 3) else (frames, *shape)
        return cls(space, (frames, *shape), 0, joined)

    def allocate(self, num_envs: int) -> Array:
        """Return zeros, as frames [N, n, ...]."""
        return np.moveaxis(np.zeros((num_envs, *self.shape), self.space.dtype), self.axis + 1, 1)

    def join(self, frames: Array) -> Array:
        """Return frames [N, n, ...] as agents see them, in the same memory."""
        return np.moveaxis(frames, 1, self.axis + 1).reshape(len(frames), *self.joined_shape)

    def stack_space(self) -> Space:
        low, high = (
            np.stack([bound] * self.shape[self.axis], self.axis).reshape(self.joined_shape)
            for bound in (self.space.low, self.space.high)
        )
        return spaces.Box(low, high, dtype=self.space.dtype.type)


def _layouts(space: Space, frames: int, id: str) -> object:
    """Return the layouts of all arrays of a space, in its nested dictionaries; the mask of allowed actions has none."""
    if isinstance(space, spaces.Dict):
        return {
            name: _layouts(inner, frames, id)
            for name, inner in space.spaces.items()
            if name != MASK
        }
    if isinstance(space, spaces.Box):
        return _Layout.of(space, frames)
    raise UsageError(
        f"frame-stack: observations of {id} hold a {type(space).__name__}; put flatten before it: "
        "--wrap flatten --wrap frame-stack"
    )


def _stack_space(space: Space, layouts: Any) -> Space:
    if isinstance(layouts, Mapping):
        entries = space.spaces.items() if isinstance(space, spaces.Dict) else ()
        return spaces.Dict(
            {
                name: _stack_space(inner, layouts[name]) if name in layouts else inner
                for name, inner in entries
            }
        )
    return layouts.stack_space()
