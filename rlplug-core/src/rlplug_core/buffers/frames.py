"""Store stacked images frame by frame: a quarter of the memory for stacks of four, without loss.

Every stored observation is compared with the previous one. If it does not continue it, as at the start of an
episode, its older frames are stored separately, so a read always returns the observed array.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from rlplug_core.arrays import Either
from rlplug_core.buffers.storage import (
    Store,
    Whole,
    allocate,
    host,
    pack,
    put,
    refill,
    take,
    unpack,
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
        channels = _frame_channels(_first(now, last), _first(after, last))
        if channels:
            return channels, last
    return 0, False


def _frame_channels(now: Array, after: Array) -> int:
    channels = now.shape[1]
    sizes = [size for size in range(1, channels // 2 + 1) if channels % size == 0]
    return next((size for size in sizes if np.array_equal(now[:, size:], after[:, :-size])), 0)


def _first(rows: Array, last: bool) -> Array:
    """Return observations [N, ...] with their channels first."""
    return np.moveaxis(rows, -1, 1) if last else rows


class Stacked:
    """Like `Whole`, for stacks [k * C, ...] of k frames with C channels; the newest is the last.

    With `last`, observations are [..., k * C]. `age` is the number of observations, at most k - 1, since the start
    of the stack that an observation continues, as far as frames suffice. Older frames repeat the first one, or are in
    `starts` under the number of that start.
    """

    def __init__(self, frames: Either, stack: int, last: bool) -> None:
        self.frames = frames
        self.stack = stack
        self.last = last
        self.length, self.num_envs, self.channels = frames.shape[:3]
        self.flat = frames.reshape(self.length * self.num_envs, *frames.shape[2:])
        self.age = np.zeros((self.length, self.num_envs), np.uint8)
        self.lags = np.arange(stack - 1, -1, -1)
        self.starts: dict[int, Array] = {}
        self.finals: dict[int, Array] = {}  # newest frames of successors that continue the stack
        self.apart: dict[int, Array] = {}  # whole stacks of other successors
        self.time = -1
        self.size = math.prod(frames.shape[2:])
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
        value = _first(value, last)
        stack = value.shape[1] // channels
        shape = (slots + stack, len(value), channels, *value.shape[2:])
        return cls(allocate(shape, value.dtype, store), stack, last)

    def put(self, time: int, value: Array) -> None:
        value = np.ascontiguousarray(_first(value, self.last))
        if time != self.time:
            self.now, self.before, self.time = self.before, self.now, time
        slot = time % self.length
        size = self.size
        put(self.frames, slot, value[:, -self.channels :])
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
                self._begin(time * self.num_envs + row, value[row])

    def _begin(self, number: int, value: Array) -> None:
        """Store the older frames of a stack that does not continue another one, unless they repeat its newest frame."""
        older = value[: -self.channels]
        newest = value[-self.channels :]
        if not (older.reshape(self.stack - 1, *newest.shape) == newest).all():
            self.starts[number] = older.copy()

    def take(self, index: Array) -> Either:
        return self._out(self._take(index))

    def _out(self, stacks: Either) -> Either:
        if not self.last:
            return stacks
        return stacks.movedim(1, -1) if isinstance(stacks, Tensor) else np.moveaxis(stacks, 1, -1)

    def _take(self, index: Array) -> Either:
        position = index % len(self.flat)
        age = self.age.reshape(-1)[position].astype(np.int64)
        back = np.minimum(self.lags, age[:, None]) * self.num_envs
        stacks = take(self.flat, (position[:, None] - back) % len(self.flat))
        stacks = stacks.reshape(len(index), *self.now.shape[1:])
        if self.starts:
            for place in np.flatnonzero(age < self.stack - 1).tolist():
                older = self.starts.get(int(index[place] - age[place] * self.num_envs))
                if older is not None:
                    kept = older[age[place] * self.channels :]
                    put(stacks, (place, slice(0, len(kept))), kept)
        return stacks

    def after(self, index: Array, ended: Array) -> Either:
        stacks = self._take(index + self.num_envs)
        positions = np.flatnonzero(ended)
        if len(positions):
            put(stacks, positions, self._finals(index[positions]))
        return self._out(stacks)

    def _finals(self, index: Array) -> Array:
        """Return the true successors [B, k * C, H, W] of steps that ended an episode."""
        stacks = host(self._take(index))
        stacks[:, : -self.channels] = stacks[:, self.channels :].copy()
        for place, number in enumerate(index.tolist()):
            if number in self.apart:
                stacks[place] = self.apart[number]
            else:
                stacks[place, -self.channels :] = self.finals[number]
        return stacks

    def finish(self, number: int, successor: Array) -> None:
        stack = host(self._take(np.array([number])))[0]
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
        whole = Whole(
            allocate((self.length - self.stack + 1, *self._out(self.now).shape), np.uint8, store)
        )
        for time in times:
            whole.put(time, self.take(np.arange(time * self.num_envs, (time + 1) * self.num_envs)))
        numbers = [*self.finals, *self.apart]
        finals = self._out(self._finals(np.array(numbers, np.int64)))
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
        made = cls(
            refill(state["frames"], state["length"], store),
            state["stack"],
            state.get("last", False),
        )
        made.age[: len(state["age"])] = state["age"]
        made.starts, made.finals = unpack(state["starts"]), unpack(state["finals"])
        made.apart = unpack(state["apart"])
        made.time = count
        numbers = np.arange(count * made.num_envs, (count + 1) * made.num_envs)
        made.now[...], made.before[...] = (
            host(made._take(numbers)),
            host(made._take(numbers - made.num_envs)),
        )
        return made
