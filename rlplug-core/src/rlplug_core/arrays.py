"""The same code for numpy arrays on the host and for torch tensors on a device.

Environments may return their rows as tensors on a device (`protocols.TensorEnv`). The fields of `Timestep`, `Step`,
`Act` and `Rollout` then hold tensors, and the same functions compute with them: they ask `namespace` for the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, State, first_leaf, tree_map

#: A numpy array or a torch tensor.
Either: TypeAlias = Any
#: An array or a tensor; functions return the kind of their argument.
A = TypeVar("A")
#: The type of a tensor for each NumPy type.
DTYPES = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}


def namespace(array: object) -> Either:
    """Return the library that computes with an array: torch for a tensor, else numpy."""
    return torch if isinstance(array, Tensor) else np


def is_on_device(tree: object) -> bool:
    """Return whether the leaves of a nested dictionary are tensors."""
    return isinstance(first_leaf(tree), Tensor)


def copy_of(array: A) -> A:
    """Return a copy of an array or a tensor."""
    value: Either = array
    return value.clone() if isinstance(array, Tensor) else value.copy()


def check_shape(saved: A, current: Either) -> A:
    """Return an array of a saved state that replaces `current`; raise ValueError if it has another shape."""
    shape = getattr(saved, "shape", None)
    if shape != current.shape:
        raise ValueError(
            f"an array of shape {shape} was saved, and {tuple(current.shape)} is the shape here"
        )
    return saved


def zeros(shape: tuple[int, ...], like: A, dtype: Either = None) -> A:
    """Return zeros in the library, on the device and of the type of `like`; `dtype` is numpy's."""
    result: Either
    if isinstance(like, Tensor):
        kind = like.dtype if dtype is None else DTYPES[np.dtype(dtype)]
        result = torch.zeros(shape, dtype=kind, device=like.device)
    else:
        result = np.zeros(shape, np.asarray(like).dtype if dtype is None else dtype)
    return result


def cast(array: A, dtype: Either) -> A:
    """Return an array or a tensor with one of numpy's types; the same one if it has the type already."""
    value: Either = array
    if isinstance(array, Tensor):
        return value.to(DTYPES[np.dtype(dtype)])
    return value.astype(dtype, copy=False)


def to_host(array: Either) -> Array:
    """Return an array; a tensor is copied from its device, which has to finish its work first."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def to_device(tree: Either, device: torch.device) -> Either:
    """Return nested dictionaries of arrays or tensors as tensors on a device."""
    if isinstance(tree, dict):
        return {key: to_device(value, device) for key, value in tree.items()}
    return None if tree is None else torch.as_tensor(tree, device=device)


def no_gradient(inputs: object) -> AbstractContextManager[None]:
    """Return a context without gradients; losses may use tensors that are made there if the inputs are tensors."""
    context: AbstractContextManager[None]
    context = torch.no_grad() if is_on_device(inputs) else torch.inference_mode()
    return context


def like_inputs(tree: Either, inputs: object) -> Either:
    """Convert tensors to the kind of the inputs: tensors on their device, or arrays on the host.

    Args:
        tree: a tensor, or nested dictionaries of tensors.
        inputs: an array or a tensor, or nested dictionaries of them.
    """
    leaf = first_leaf(inputs)
    if isinstance(leaf, Tensor):
        return tree_map(lambda part: part.to(leaf.device), tree)
    return tree_map(to_host, tree)


class DeviceGenerator:
    """Draws random tensors on a device, by the names that numpy's `Generator` has; nothing waits for the device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device)
        self.generator.manual_seed(seed)

    def _empty(self, size: tuple[int, ...]) -> Tensor:
        return torch.empty(size, device=self.device)

    def standard_normal(
        self,
        size: tuple[int, ...],
        dtype: object = None,
    ) -> Tensor:
        """Draw standard normal numbers of float32."""
        return self._empty(size).normal_(generator=self.generator)

    def random(self, size: tuple[int, ...], dtype: object = None) -> Tensor:
        """Draw uniform numbers of float32 in [0, 1)."""
        return self._empty(size).uniform_(generator=self.generator)

    def integers(self, low: int, high: int, size: int) -> Tensor:
        """Draw `size` integers of int64 in [low, high)."""
        return torch.randint(low, high, (size,), generator=self.generator, device=self.device)

    def gumbel(self, size: tuple[int, ...]) -> Tensor:
        """Draw from the standard Gumbel distribution: minus the logarithm of exponential numbers."""
        return self._empty(size).exponential_(generator=self.generator).log_().neg_()

    def logistic(self, size: tuple[int, ...]) -> Tensor:
        """Draw from the standard logistic distribution, the difference of two Gumbel numbers."""
        return self.gumbel(size) - self.gumbel(size)

    def state_dict(self) -> State:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Either]) -> None:
        self.generator.set_state(state["generator"].cpu())


class DeviceDraws:
    """`seeds.Draws` on a device: each call draws its numbers, because with many rows blocks would save no time.

    Args:
        seeds: seeds of the generator.
        device: the device of the numbers.
        rows: the number of rows of a draw if `next` gets none.
        draw: returns a block [1, rows, …] of random numbers.
    """

    def __init__(
        self,
        seeds: Seeds,
        device: torch.device,
        rows: int,
        draw: Callable[[Either, tuple[int, int]], Either],
    ) -> None:
        self.generator = DeviceGenerator(seeds.integer(), device)
        self.rows = rows
        self.draw = draw

    def next(self, rows: int = 0) -> Either:
        """Return the next draw [rows, …]."""
        return self.draw(self.generator, (1, rows or self.rows))[0]

    def state_dict(self) -> State:
        return self.generator.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.generator.load_state_dict(state)
