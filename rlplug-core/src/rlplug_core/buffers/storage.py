"""Where stored observations lie: host memory, a file on disk, or a device; and how rows get in and out."""

from __future__ import annotations

import tempfile
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rlplug_core.types import Array

#: `memory`, `disk` (a temporary file, in TMPDIR), or the name of a torch device such as `cuda`.
Store: TypeAlias = str


def allocate(shape: tuple[int, ...], dtype: Any, store: Store) -> Any:
    """An array, or a tensor on a device; memory and disk are taken page by page, as they are first written."""
    if store == "memory":
        return np.zeros(shape, dtype)
    if store == "disk":
        with tempfile.TemporaryFile(prefix="rlplug-replay-") as file:  # it has no name, so it goes with the process
            return np.memmap(file, dtype, "w+", shape=shape)
    return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=store)


def put(store: Any, where: Any, value: Any) -> None:
    """`store[where] = value`, whichever of the two is an array and which a tensor."""
    if isinstance(store, Tensor):
        store[where] = torch.as_tensor(value, device=store.device)
    else:
        store[where] = host(value)


def take(store: Any, positions: Array) -> Any:
    """The rows at `positions`, as a copy that lies where the store does."""
    if isinstance(store, Tensor):
        rows = store.index_select(0, torch.from_numpy(positions.reshape(-1)).to(store.device))
        return rows.reshape(*positions.shape, *store.shape[1:])
    return store.take(positions, axis=0)


def host(rows: Any) -> Array:
    """Rows as an array in host memory."""
    return rows.cpu().numpy() if isinstance(rows, Tensor) else rows


class Whole:
    """Observations as they come, for one part of an observation: one array [length, N, ...].

    Steps are numbered from the first, `time * N + row`. The `length` last times can be read. True successors of steps
    that ended an episode are kept apart, by the number of the step.
    """

    #: Earlier times that reading one takes.
    reach = 0

    def __init__(self, array: Any) -> None:
        self.array = array
        self.length, self.rows = array.shape[:2]
        self.flat = array.reshape(-1, *array.shape[2:])
        self.finals: dict[int, Any] = {}

    def put(self, time: int, value: Array) -> None:
        """Store the observations [N, ...] of one time, again where it has some already."""
        put(self.array, time % self.length, value)

    def take(self, index: Array) -> Any:
        """The observations [B, ...] of the steps numbered `index`."""
        return take(self.flat, index % len(self.flat))

    def after(self, index: Array, ended: Array) -> Any:
        """What the steps numbered `index` led to; `ended` [B] says which of them ended an episode."""
        found = self.take(index + self.rows)
        positions = np.flatnonzero(ended)
        if len(positions):
            put(found, positions, np.stack([self.finals[number] for number in index[positions].tolist()]))
        return found

    def finish(self, number: int, successor: Array) -> None:
        """Keep the true successor of a step that ended an episode."""
        self.finals[number] = successor.copy()

    def forget(self, number: int) -> None:
        """A step is gone."""
        self.finals.pop(number, None)

    def state_dict(self, count: int) -> dict[str, Any]:
        """What `count` steps and the observations after them have filled, not copied."""
        keys = sorted(self.finals)
        finals = np.stack([self.finals[key] for key in keys]) if keys else None
        used = min(count + 1, self.length)
        return {"length": self.length, "array": self.array[:used], "keys": np.array(keys, np.int64), "finals": finals}

    @classmethod
    def load(cls, state: dict[str, Any], store: Store) -> Whole:
        saved = state["array"]
        dtype = saved.numpy().dtype if isinstance(saved, Tensor) else saved.dtype
        made = cls(allocate((state["length"], *saved.shape[1:]), dtype, store))
        put(made.array, slice(0, len(saved)), saved)
        made.finals = {int(key): state["finals"][position] for position, key in enumerate(state["keys"])}
        return made
