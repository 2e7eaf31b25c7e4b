"""Tensors, weights and files in the memory that the processes of a run share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlplug_core.errors import RlplugError
from rlplug_core.loop.chunks import Places
from rlplug_core.types import State, tree_map

#: The message if shared memory is full: containers often have only 64 MB.
FULL = (
    "the processes of this run need more shared memory than /dev/shm has; give it more, as with 'docker run "
    "--shm-size=2g', or use fewer processes, smaller chunks or --inline"
)


def share_tensor(tensor: Tensor) -> Tensor:
    """Move a tensor to shared memory, and return it.

    Raises:
        RlplugError: there is not enough.
    """
    try:
        tensor.share_memory_()
    except RuntimeError as error:
        if "No space left" not in str(error):
            raise
        raise RlplugError(FULL) from error
    return tensor


def reserve_file(handle: int, size: int) -> None:
    """Reserve the size of a file in shared memory; without it, a write to memory that does not exist kills the process.

    Raises:
        RlplugError: there is not enough.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        os.ftruncate(handle, size)
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise RlplugError(FULL) from error


#: Positions in `SharedWeights.versions`: the version being written, and the last finished one.
STARTED = 0
DONE = 1


@dataclass(frozen=True)
class SharedWeights:
    """A copy of weights in shared memory, and the number of its version.

    There is no lock, because it would stay locked if its owner were killed. A reader checks the versions instead: if a
    new version was started while it copied, it copies again. This needs writes that become visible in their order, as
    on x86.
    """

    places: State
    memory: Tensor
    versions: Tensor

    @classmethod
    def like(cls, weights: Mapping[str, object]) -> SharedWeights:
        """Allocate memory for weights of these shapes."""
        make = Places()
        places = tree_map(
            lambda tensor: make(tuple(tensor.shape), tensor.cpu().numpy().dtype), dict(weights)
        )
        memory = share_tensor(torch.zeros(make.size, dtype=torch.uint8))
        return cls(places, memory, share_tensor(torch.zeros(2, dtype=torch.int64)))

    def put(self, weights: Mapping[str, object], version: int) -> None:
        """Write a new version of the weights."""
        self._marks[STARTED] = version
        tree_map(lambda stored, tensor: stored.copy_(tensor.detach()), self._tensors, weights)
        self._marks[DONE] = version

    def get(self, weights: Mapping[str, object]) -> int:
        """Copy the newest version into `weights`, in place, and return its number."""
        while True:
            version = int(self._marks[DONE])
            tree_map(lambda stored, tensor: tensor.copy_(stored), self._tensors, weights)
            if int(self._marks[STARTED]) == version:
                return version

    def __getstate__(self) -> State:
        """Leave out views of the memory: pickle would copy it for each of them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _tensors(self) -> object:
        memory = self.memory.numpy()
        return tree_map(lambda place: torch.from_numpy(place.view(memory)), self.places)

    @cached_property
    def _marks(self) -> Any:
        return self.versions.numpy()
