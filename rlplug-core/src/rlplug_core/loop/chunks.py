"""Store the steps that a decoupled actor sends at once, in separate arrays or in a block of shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from rlplug_core.arrays import zeros
from rlplug_core.buffers.rollout import put
from rlplug_core.types import Array, Chunk, State, Step, tree_map

#: The fields that are stored for every step; observations and `ended` are stored apart.
FIELDS = (
    "action",
    "reward",
    "terminated",
    "truncated",
    "is_first",
    "valid",
    "extras",
    "recurrent_state",
)
#: Arrays in a block start at multiples of this many bytes, a cache line.
LINE = 64


def chunk_arrays(
    step: Step,
    length: int,
    make: Callable[[tuple[int, ...], Any], Any] | None = None,
) -> State:
    """Return arrays for `length` steps like `step`; tensors on their device for a step of tensors.

    `make` makes an array in another place, from its shape and its type. A step's successor is the next row's
    observation. It is stored apart, under `final_obs`, if an episode ended; other rows of `final_obs` are
    never written, so they take no memory in a shared block.
    """

    def allocate(array: Array, more: int = 0) -> Any:
        shape = (length + more, *array.shape)
        return zeros(shape, array) if make is None else make(shape, array.dtype)

    return {
        "obs": tree_map(lambda array: allocate(array, 1), step.obs),
        "final_obs": tree_map(allocate, step.obs),
        "ended": (make or np.zeros)((length,), np.dtype(bool)),
        **{name: tree_map(allocate, getattr(step, name)) for name in FIELDS},
    }


def write(store: State, t: int, step: Step) -> None:
    """Copy step number `t` of a chunk into its arrays; the steps before it must be there already."""
    if t == 0 or store["ended"][t - 1]:
        put(store["obs"], t, step.obs)
    if step.ended:
        put(store["final_obs"], t, step.next_obs)
    else:
        put(store["obs"], t + 1, step.next_obs)
    store["ended"][t] = step.ended
    for name in FIELDS:
        arrays = store[name]
        if type(arrays) is np.ndarray:  # a call for each would take a third of the time
            arrays[t] = getattr(step, name)
        elif arrays is not None:
            put(arrays, t, getattr(step, name))


def read(store: State, t: int) -> Step:
    """Return views of step number `t` of a chunk."""

    def row(tree: object, number: int = t) -> Any:
        return tree_map(lambda array: array[number], tree)

    ended = bool(store["ended"][t])
    fields = {name: row(store[name]) for name in FIELDS}
    return Step(
        obs=row(store["obs"]),
        ended=ended,
        next_obs=row(store["final_obs"]) if ended else row(store["obs"], t + 1),
        **fields,
    )


def pack(store: State) -> State:
    """Return the arrays of a chunk for a link that copies them, without unwritten rows of `final_obs`."""
    return {**store, "final_obs": tree_map(lambda array: array[store["ended"]], store["final_obs"])}


def unpack(data: State) -> State:
    """Return the arrays of a chunk; the inverse of `pack`."""

    def spread(array: Array) -> Array:
        rows = np.zeros((len(data["ended"]), *array.shape[1:]), array.dtype)
        rows[data["ended"]] = array
        return rows

    return {**data, "final_obs": tree_map(spread, data["final_obs"])}


def chunk_state(chunk: Chunk) -> State:
    """Return a chunk in the form of a state; `Chunk(**state)` restores it."""
    return {
        "source": chunk.source,
        "version": chunk.version,
        "data": chunk.data,
        "begins": chunk.begins,
    }


@dataclass(frozen=True)
class Place:
    """The place of an array in a block of memory: it starts at byte `start`."""

    start: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, memory: Array) -> Array:
        """Return the array in the block `memory` [bytes]."""
        size = prod(self.shape) * np.dtype(self.dtype).itemsize
        return memory[self.start : self.start + size].view(self.dtype).reshape(self.shape)


def views_of_slots(places: State, slots: Tensor) -> list[State]:
    """Return the arrays of a chunk in each slot of `slots` [slots, bytes]."""
    return [
        tree_map(lambda place, memory=memory: place.view(memory), places)
        for memory in slots.numpy()
    ]


class Places:
    """Assigns arrays to places in a block, one after the other; `size` is their total number of bytes."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Place:
        place = Place(self.size, tuple(shape), np.dtype(dtype).str)
        self.size += -(-prod(shape) * np.dtype(dtype).itemsize // LINE) * LINE
        return place
