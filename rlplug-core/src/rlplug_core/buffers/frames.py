"""Store stacked images frame by frame: a quarter of the memory for stacks of four, without loss.

Every stored observation is compared with the previous one. If it does not continue that one, as at the start of an
episode, its older frames are stored separately, so a read always returns the observed array.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from rlplug_core.arrays import Either, to_host
from rlplug_core.buffers.storage import (
    Store,
    Whole,
    allocate,
    pack,
    read_rows,
    storage_from,
    unpack,
    write_rows,
)
from rlplug_core.types import Array, State, channels_last

#: Number of steps after which the buffer decides whether observations are stacks of frames.
TRIAL = 64


def frame_channels(now: Array, after: Array) -> tuple[int, bool]:
    """Return the channels of one frame if `after` is `now` plus one frame, else 0; and whether channels come last.

    Stacks are [N, k * C, H, W], [N, H, W, k * C], or [N, k, H, W, C], which is treated as the first.
    """
    if now.dtype != np.uint8 or now.ndim not in (4, 5):
        return 0, False
    # If nothing moves, every axis could hold the frames.
    likely = now.ndim == 4 and channels_last(now.shape[1:])
    for last in (likely, not likely) if now.ndim == 4 else (False,):
        channels = _frame_channels(_channels_first(now, last), _channels_first(after, last))
        if channels:
            return channels, last
    return 0, False


def _frame_channels(now: Array, after: Array) -> int:
    """Return the channels of one frame of stacks [N, k * C, ...] if `after` is `now` plus one frame, else 0."""
    channels = now.shape[1]
    sizes = [size for size in range(1, channels // 2 + 1) if channels % size == 0]
    return next((size for size in sizes if np.array_equal(now[:, size:], after[:, :-size])), 0)


def _channels_first(rows: Array, last: bool) -> Array:
    """Return observations [N, ...] with their channels first, if they are `last`."""
    return np.moveaxis(rows, -1, 1) if last else rows


class Stacked:
    """Like `Whole`, for stacks [k * C, ...] of k frames with C channels; the newest frame is the last.

    Args:
        frames: [length, N, C, ...] memory for the newest frame of each observation.
        stack: k, the number of frames in an observation.
        last: whether channels come last, so that observations are [..., k * C].

    Attributes:
        age: [length, N] the number of observations since the stack of an observation started, at most k - 1. Frames
            from before that start repeat its newest frame, or are in `starts`.
        starts: the older frames of observations that start a stack, by their numbers.
        finals: the newest frames of successors that continue the stack, by the numbers of their steps.
        apart: the other successors, as whole stacks.
    """

    kind = "stacked"

    def __init__(self, frames: Either, stack: int, last: bool) -> None:
        self.frames = frames
        self.stack = stack
        self.last = last
        self.length, self.num_envs, self.channels = frames.shape[:3]
        self.flat = frames.reshape(self.length * self.num_envs, *frames.shape[2:])
        self.age = np.zeros((self.length, self.num_envs), np.uint8)
        self.lags = np.arange(stack - 1, -1, -1)
        self.starts: dict[int, Array] = {}
        self.finals: dict[int, Array] = {}
        self.apart: dict[int, Array] = {}
        self.frame_size = math.prod(frames.shape[2:])
        # The newest time, and the observations of this time and of the one before it.
        self.time = -1
        shape = (self.num_envs, stack * self.channels, *frames.shape[3:])
        self.now = np.zeros(shape, np.uint8)
        self.before = np.zeros(shape, np.uint8)

    @classmethod
    def like(
        cls,
        value: Array,
        channels: int,
        last: bool,
        slots: int,
        store: Store,
    ) -> Stacked:
        """Allocate memory for `slots` steps, the newest successor, and the older frames that the oldest step needs."""
        value = _channels_first(value, last)
        stack = value.shape[1] // channels
        shape = (slots + stack, len(value), channels, *value.shape[2:])
        return cls(allocate(shape, value.dtype, store), stack, last)

    def put(self, time: int, value: Array) -> None:
        value = np.ascontiguousarray(_channels_first(value, self.last))
        if time != self.time:
            self.now, self.before, self.time = self.before, self.now, time
        slot = time % self.length
        size = self.frame_size
        write_rows(self.frames, slot, value[:, -self.channels :])
        follows = (
            self.before.reshape(self.num_envs, -1)[:, size:]
            == value.reshape(self.num_envs, -1)[:, :-size]
        ).all(axis=1)
        if time == 0:
            follows[:] = False
        older = np.minimum(self.age[slot - 1] + 1, self.stack - 1)
        self.age[slot] = np.where(follows, older, 0)
        self.now[...] = value
        if self.starts:
            for number in range(time * self.num_envs, (time + 1) * self.num_envs):
                self.starts.pop(number, None)
                self.starts.pop(number - self.length * self.num_envs, None)
        if not follows.all():
            for row in np.flatnonzero(~follows).tolist():
                self._start_stack(time * self.num_envs + row, value[row])

    def _start_stack(self, number: int, value: Array) -> None:
        """Store the older frames of a stack that does not continue another one, unless they repeat its newest frame."""
        older = value[: -self.channels]
        newest = value[-self.channels :]
        if not (older.reshape(self.stack - 1, *newest.shape) == newest).all():
            self.starts[number] = older.copy()

    def take(self, index: Array) -> Either:
        return self._as_observed(self._take(index))

    def _as_observed(self, stacks: Either) -> Either:
        """Return stacks [B, k * C, ...] with their channels last, if observations have them there."""
        if not self.last:
            return stacks
        return stacks.movedim(1, -1) if isinstance(stacks, Tensor) else np.moveaxis(stacks, 1, -1)

    def _take(self, index: Array) -> Either:
        """Return the observations of `take` as stacks [B, k * C, ...]."""
        position = index % len(self.flat)
        age = self.age.reshape(-1)[position].astype(np.int64)
        back = np.minimum(self.lags, age[:, None]) * self.num_envs
        stacks = read_rows(self.flat, (position[:, None] - back) % len(self.flat))
        stacks = stacks.reshape(len(index), *self.now.shape[1:])
        if self.starts:
            for place in np.flatnonzero(age < self.stack - 1).tolist():
                older = self.starts.get(int(index[place] - age[place] * self.num_envs))
                if older is not None:
                    visible = older[age[place] * self.channels :]
                    write_rows(stacks, (place, slice(0, len(visible))), visible)
        return stacks

    def after(self, index: Array, ended: Array) -> Either:
        stacks = self._take(index + self.num_envs)
        positions = np.flatnonzero(ended)
        if len(positions):
            write_rows(stacks, positions, self._finals(index[positions]))
        return self._as_observed(stacks)

    def _finals(self, index: Array) -> Array:
        """Return the true successors [B, k * C, H, W] of steps that ended an episode."""
        stacks = to_host(self._take(index))
        stacks[:, : -self.channels] = stacks[:, self.channels :].copy()
        for place, number in enumerate(index.tolist()):
            if number in self.apart:
                stacks[place] = self.apart[number]
            else:
                stacks[place, -self.channels :] = self.finals[number]
        return stacks

    def finish(self, number: int, successor: Array) -> None:
        stack = to_host(self._take(np.array([number])))[0]
        successor = np.moveaxis(successor, -1, 0) if self.last else successor
        if np.array_equal(stack[self.channels :], successor[: -self.channels]):
            self.finals[number] = successor[-self.channels :].copy()
        else:
            self.apart[number] = successor.copy()

    def forget(self, number: int) -> None:
        self.finals.pop(number, None)
        self.apart.pop(number, None)

    def simplest_form(self, count: int, store: Store) -> Stacked | Whole:
        """Return itself, or a `Whole` storage if most observations do not continue a stack."""
        times = range(max(0, count + 1 - (self.length - self.stack + 1)), count + 1)
        if 2 * len(self.starts) <= len(times) * self.num_envs:
            return self
        shape = self._as_observed(self.now).shape
        whole = Whole(allocate((self.length - self.stack + 1, *shape), np.uint8, store))
        for time in times:
            whole.put(time, self.take(np.arange(time * self.num_envs, (time + 1) * self.num_envs)))
        numbers = [*self.finals, *self.apart]
        finals = self._as_observed(self._finals(np.array(numbers, np.int64)))
        whole.finals = dict(zip(numbers, finals, strict=True))
        return whole

    def state_dict(self, count: int) -> State:
        used = min(count + 1, self.length)
        return {
            "stack": self.stack,
            "last": self.last,
            "length": self.length,
            "frames": self.frames[:used],
            "age": self.age[:used],
            "starts": pack(self.starts),
            "finals": pack(self.finals),
            "apart": pack(self.apart),
        }

    @classmethod
    def load(cls, state: State, count: int, store: Store) -> Stacked:
        storage = cls(
            storage_from(state["frames"], state["length"], store),
            state["stack"],
            state.get("last", False),
        )
        storage.age[: len(state["age"])] = state["age"]
        storage.starts = unpack(state["starts"])
        storage.finals = unpack(state["finals"])
        storage.apart = unpack(state["apart"])
        storage.time = count
        numbers = np.arange(count * storage.num_envs, (count + 1) * storage.num_envs)
        storage.now[...] = to_host(storage._take(numbers))
        storage.before[...] = to_host(storage._take(numbers - storage.num_envs))
        return storage
