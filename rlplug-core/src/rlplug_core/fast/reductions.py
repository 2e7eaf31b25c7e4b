"""Functions of a `FastTensor` along an axis, and functions that change its shape, by torch's names."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from rlplug_core.fast.constants import row_numbers
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.node import Node
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.types import Array

N = TypeVar("N", bound=Node)


class Sorted(NamedTuple, Generic[N]):
    """The result of `FastTensor.sort`, as torch names it."""

    values: N
    indices: N


class Reductions(Node):
    """Functions along one axis, or of all values."""

    __slots__ = ()

    def sum(self, dim: int | None = None) -> Self:
        """Compute the sum along one axis, or of all values."""
        if dim is None:
            return self.reshape(-1).sum(0)
        before = self.value.shape

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.empty(before, gradient.dtype)
            below[...] = _expand(gradient, dim)
            return (below,)

        return self.result(np.asarray(np.add.reduce(self.value, dim)), backward)

    def amin(self, dim: int) -> Self:
        """Compute the minimum along one axis; equal values share the gradient."""
        value = self.value
        smallest = np.minimum.reduce(value, dim)

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            share = (value == _expand(smallest, dim)).astype(value.dtype)
            share /= np.add.reduce(share, dim, keepdims=True)
            return (_expand(gradient, dim) * share,)

        return self.result(smallest, backward)

    def argmax(self, dim: int) -> Self:
        return self.constant(self.value.argmax(dim))

    def sort(self, dim: int = -1) -> Sorted[Self]:
        if self.backward_of is not None:
            raise NoFastPath("sort with a gradient")
        values = self.constant(np.sort(self.value, dim))
        return Sorted(values, self.constant(self.value.argsort(dim)))

    def _view(self, value: Array) -> Self:
        """Return the values in another shape."""
        before = self.value.shape
        return self.result(value, lambda gradient, into: (gradient.reshape(before),))

    def unsqueeze(self, axis: int) -> Self:
        return self._view(_expand(self.value, axis))

    def squeeze(self, axis: int) -> Self:
        return self._view(self.value.squeeze(axis)) if self.value.shape[axis] == 1 else self

    def reshape(self, *shape: int | tuple[int, ...]) -> Self:
        sizes: Any = shape
        return self._view(self.value.reshape(*sizes))

    view = reshape

    def flatten(self, start_dim: int = 0) -> Self:
        return self._view(self.value.reshape(*self.value.shape[:start_dim], -1))

    def log_softmax(self, dim: int) -> Self:
        """Compute log-probabilities along the last axis."""
        value = self.value
        if dim not in (-1, value.ndim - 1):
            raise NoFastPath("log_softmax along another axis than the last one")
        log_probs, probs = _log_softmax(np.ascontiguousarray(value).reshape(-1, value.shape[-1]))
        share = probs.reshape(value.shape)
        return self.result(
            log_probs.reshape(value.shape),
            lambda g, into: (g - share * np.add.reduce(g, -1, keepdims=True),),
        )

    def take_along_rows(self, places: Array) -> Self:
        """Take one value of each row along the last axis of [..., n]; `places` is [..., 1]."""
        before = self.value.shape
        if places.shape != (*before[:-1], 1):
            raise NoFastPath("gather of another shape than one number of each row")

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.zeros(before, gradient.dtype)
            np.put_along_axis(below, places, gradient, -1)
            return (below,)

        return self.result(np.take_along_axis(self.value, places, -1), backward)

    def at(self, index: Array) -> Self:
        """Return the entries of [B, A, ...] at `index` [B]."""
        rows = row_numbers(len(index))
        before = self.value

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.zeros(before.shape, before.dtype)
            below[rows, index] = gradient
            return (below,)

        return self.result(before[rows, index], backward)


def _log_softmax(logits: Array) -> tuple[Array, Array]:
    """Compute log-probabilities and probabilities of logits [R, n]."""
    loops = loop_module("heads")
    if loops is not None and logits.dtype == np.float32:
        log_probs = np.empty_like(logits)
        probs = np.empty_like(logits)
        loops.log_softmax(logits, log_probs, probs)
        return log_probs, probs
    log_probs = logits - np.maximum.reduce(logits, 1, keepdims=True)
    probs = np.exp(log_probs)
    total = np.add.reduce(probs, 1, keepdims=True)
    log_probs -= np.log(total)
    probs /= total
    return log_probs, probs


def _expand(values: Array, axis: int) -> Array:
    """Return values with a new axis of length 1; `np.expand_dims` takes ten times as long."""
    shape = list(values.shape)
    shape.insert(axis if axis >= 0 else axis + values.ndim + 1, 1)
    return values.reshape(shape)
