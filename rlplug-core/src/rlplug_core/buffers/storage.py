"""Store observations unchanged in host memory, in a file on disk, or on a device, and read them back.

Steps are numbered from the first, `time * N + row`, so that a number always means the same step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlplug_core.arrays import Either, to_host
from rlplug_core.errors import PluginError
from rlplug_core.types import Array, State, tree_map

#: `memory`, `disk` (a temporary file, in TMPDIR), or the name of a torch device such as `cuda`.
Store: TypeAlias = str
#: torch cannot read or write single rows of these unsigned types, but it can for the signed type of the same size.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

#: Arrays in one copy start at multiples of this many bytes, because kernels read so many at once.
ALIGNED = 16


def allocate(
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    store: Store,
) -> Either:
    """Allocate an array, or a tensor on a device; the system gives pages of memory and disk at their first write."""
    # A file cannot be mapped without bytes.
    if store == "memory" or (store == "disk" and 0 in shape):
        return np.zeros(shape, dtype)
    if store == "disk":
        # The file has no name, so the system deletes it with the process.
        with tempfile.TemporaryFile(prefix="rlplug-replay-") as file:
            return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
    return torch.empty(shape, dtype=torch_dtype(np.dtype(dtype)), device=store)


def check_extras(extras: Mapping[str, Either], rows: int) -> None:
    """Refuse an agent's extras unless they have one entry for each row: numpy would broadcast them silently.

    Raises:
        PluginError: an array has another length; the message names it.
    """
    for name, array in extras.items():
        if np.shape(array)[:1] != (rows,):
            raise PluginError(
                f"the agent's extras['{name}'] has shape {np.shape(array)}, and there are {rows} rows; give an array "
                f"[{rows}, ...] with one entry for each"
            )


def storage_from(saved: Either, length: int, store: Store) -> object:
    """Allocate storage of this length that starts with the rows `saved`, which may come from any kind of store."""
    storage = allocate((length, *saved.shape[1:]), to_host(saved[:0]).dtype, store)
    write_rows(storage, slice(0, len(saved)), saved)
    return storage


def write_rows(
    store: Either,
    index: int | slice | Array | tuple[int, slice],
    value: Either,
) -> None:
    """Set `store[index] = value`; each may be an array or a tensor."""
    if isinstance(store, Tensor):
        _as_signed(store)[index] = _as_signed(
            torch.as_tensor(value, dtype=store.dtype, device=store.device)
        )
    else:
        store[index] = to_host(value)


def read_rows(store: Either, positions: Array) -> Either:
    """Return a copy of the rows at `positions`, on the device of the store."""
    if isinstance(store, Tensor):
        rows = _as_signed(store).index_select(
            0, torch.from_numpy(positions.reshape(-1)).to(store.device, non_blocking=True)
        )
        return rows.view(store.dtype).reshape(*positions.shape, *store.shape[1:])
    return store.take(positions, axis=0)


def _as_signed(rows: Tensor) -> Tensor:
    """Return a view of the same memory in a type of `SIGNED`, so that torch can read and write single rows."""
    return rows.view(SIGNED.get(rows.dtype, rows.dtype))


def _to_tensor(rows: object, device: torch.device) -> Tensor:
    """Return rows as a tensor on a device; on the CPU it shares their memory.

    A copy to a GPU may still run; later work on the GPU waits for it. A copy to the host has finished.
    """
    tensor = rows if isinstance(rows, Tensor) else torch.from_numpy(rows)
    return (
        tensor if tensor.device == device else tensor.to(device, non_blocking=device.type == "cuda")
    )


def send(trees: Sequence[object], device: torch.device) -> list[Any]:
    """Return nested dictionaries of arrays and tensors as tensors on a device; one copy moves all arrays to a GPU."""
    if device.type == "cpu":
        return [tree_map(lambda rows: _to_tensor(rows, device), tree) for tree in trees]
    arrays: list[Array] = []
    for tree in trees:
        tree_map(lambda rows: arrays.append(rows) if isinstance(rows, np.ndarray) else None, tree)
    copies = iter(copy_together(arrays, device))
    return [
        tree_map(
            lambda rows: next(copies) if isinstance(rows, np.ndarray) else _to_tensor(rows, device),
            tree,
        )
        for tree in trees
    ]


def copy_together(
    arrays: Sequence[Array],
    device: torch.device,
) -> list[Tensor]:
    """Copy arrays to a device in one transfer, because its start takes longer than the copy of a batch of vectors.

    The source is pinned memory, so the CPU does not wait. Arrays of one type are adjacent, so one call splits them.
    """
    dtypes = dict.fromkeys(array.dtype for array in arrays)
    groups = {dtype: [array for array in arrays if array.dtype == dtype] for dtype in dtypes}
    sizes = {dtype: sum(array.nbytes for array in group) for dtype, group in groups.items()}
    starts = [0, *accumulate(size + -size % ALIGNED for size in sizes.values())]
    source = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    source_bytes = source.numpy()
    for (dtype, group), start in zip(groups.items(), starts, strict=False):
        flat = [array.reshape(-1) for array in group]
        np.concatenate(flat, out=source_bytes[start : start + sizes[dtype]].view(dtype))
    target = source.to(device, non_blocking=True)
    copies = {}
    for (dtype, group), start in zip(groups.items(), starts, strict=False):
        part = target[start : start + sizes[dtype]].view(torch_dtype(dtype))
        copies[dtype] = iter(part.split([array.size for array in group]))
    return [
        next(copies[a.dtype]) if a.ndim == 1 else next(copies[a.dtype]).view(a.shape)
        for a in arrays
    ]


@cache
def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Return torch's dtype for a dtype of numpy."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def pack(parts: Mapping[int, Array]) -> State:
    """Return a dictionary from numbers to arrays of one shape as two arrays."""
    return {
        "keys": np.array(list(parts), np.int64),
        "rows": np.stack(list(parts.values())) if parts else None,
    }


def unpack(state: State) -> dict[int, Array]:
    """Return the dictionary of a state; the inverse of `pack`."""
    return {int(key): state["rows"][position].copy() for position, key in enumerate(state["keys"])}


class Whole:
    """Stores one part of the observations unchanged, as one array [length, N, ...].

    The last `length` times can be read. The true successors of steps that ended an episode are stored separately.
    """

    kind = "whole"

    def __init__(self, array: Either) -> None:
        self.array = array
        self.length, self.num_envs = array.shape[:2]
        self.flat = array.reshape(self.length * self.num_envs, *array.shape[2:])
        self.finals: dict[int, Array] = {}

    def put(self, time: int, value: Array) -> None:
        """Store the observations [N, ...] of one time; replace earlier ones."""
        write_rows(self.array, time % self.length, value)

    def take(self, index: Array) -> Either:
        """Return the observations [B, ...] of the steps numbered `index`."""
        return read_rows(self.flat, index % len(self.flat))

    def after(self, index: Array, ended: Array) -> Either:
        """Return the successors of the steps numbered `index`; `ended` [B] says which of them ended an episode."""
        successors = self.take(index + self.num_envs)
        positions = np.flatnonzero(ended)
        if len(positions):
            write_rows(
                successors,
                positions,
                np.stack([self.finals[number] for number in index[positions].tolist()]),
            )
        return successors

    def finish(self, number: int, successor: Array) -> None:
        """Store the true successor of a step that ended an episode."""
        self.finals[number] = successor.copy()

    def forget(self, number: int) -> None:
        """Drop the successor of a step that has been overwritten."""
        self.finals.pop(number, None)

    def simplest_form(self, count: int, store: Store) -> Whole:
        """Return itself: whole arrays are the simplest form."""
        return self

    def state_dict(self, count: int) -> State:
        """Return the part that `count` steps and their successors have filled, not copied."""
        used = min(count + 1, self.length)
        return {"length": self.length, "array": self.array[:used], "finals": pack(self.finals)}

    @classmethod
    def load(cls, state: State, count: int, store: Store) -> Whole:
        storage = cls(storage_from(state["array"], state["length"], store))
        storage.finals = unpack(state["finals"])
        return storage
