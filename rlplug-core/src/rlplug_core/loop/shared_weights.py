"""Weights in shared memory with a version: one process writes them, others read them, without a lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlplug_core.loop.chunks import Places
from rlplug_core.loop.shared_memory import share_tensor
from rlplug_core.types import State, tree_map

#: Positions in `SharedWeights.versions`: the version being written, and the last finished one.
BEGUN = 0
DONE = 1


@dataclass(frozen=True)
class SharedWeights:
    """A copy of weights, and which version of them it is; travels to other processes, which see the same memory.

    A lock would stay locked if its owner were killed. A reader looks at the versions instead: it has one version whole
    if no version was started since the one that was finished when it started to read; else it reads again. It needs
    stores that become visible in their order, as on x86.
    """

    places: State
    memory: Tensor
    versions: Tensor

    @classmethod
    def like(cls, weights: Mapping[str, object]) -> SharedWeights:
        """Room for the version 0 of such weights."""
        make = Places()
        places = tree_map(
            lambda tensor: make(tuple(tensor.shape), tensor.cpu().numpy().dtype), dict(weights)
        )
        memory = share_tensor(torch.zeros(make.size, dtype=torch.uint8))
        return cls(places, memory, share_tensor(torch.zeros(2, dtype=torch.int64)))

    def put(self, weights: Mapping[str, object], version: int) -> None:
        """Make `weights` the version that others get."""
        self._marks[BEGUN] = version
        tree_map(lambda there, tensor: there.copy_(tensor.detach()), self._tensors, weights)
        self._marks[DONE] = version

    def get(self, weights: Mapping[str, object]) -> int:
        """Copy the newest version into `weights`, in place, and return which it is."""
        while True:
            version = int(self._marks[DONE])
            tree_map(lambda there, tensor: tensor.copy_(there), self._tensors, weights)
            if int(self._marks[BEGUN]) == version:
                return version

    def __getstate__(self) -> State:
        """Leave out views of the memory: they would be pickled as memory of their own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _tensors(self) -> object:
        memory = self.memory.numpy()
        return tree_map(lambda place: torch.from_numpy(place.view(memory)), self.places)

    @cached_property
    def _marks(self) -> Any:
        return self.versions.numpy()
