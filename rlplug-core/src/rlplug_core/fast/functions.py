"""Functions of torch that are not methods of `FastTensor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.fast.array import FastTensor, Operand, operand
from rlplug_core.fast.dispatch import BINARY, FUNCTIONS
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.types import Array


def _left_operand(name: str) -> Callable[..., FastTensor]:
    """Return a binary method that takes a tensor on the left."""
    method = getattr(FastTensor, name)

    def call(first: Any, second: Operand) -> FastTensor:
        return method(first if first.__class__ is FastTensor else operand(first), second)

    return call


for method, names in {
    "__add__": ("add", "__add__", "__radd__"),
    "__sub__": ("sub", "__sub__", "subtract"),
    "__rsub__": ("rsub", "__rsub__"),
    "__mul__": ("mul", "__mul__", "__rmul__", "multiply"),
    "__truediv__": ("div", "true_divide", "__truediv__", "divide"),
    "__rtruediv__": ("__rtruediv__", "__rdiv__"),
    "minimum": ("minimum",),
    "maximum": ("maximum",),
    "dot": ("dot",),
    "__matmul__": ("matmul", "__matmul__"),
}.items():
    BINARY.update(dict.fromkeys(names, _left_operand(method)))


def _minimum(first: Operand, second: object = None) -> FastTensor:
    """Compute `torch.min` of two tensors."""
    if not isinstance(second, FastTensor | Tensor):
        raise NoFastPath("torch.min of one tensor")
    return BINARY["minimum"](first, second)


def _maximum(first: Operand, second: object = None) -> FastTensor:
    """Compute `torch.max` of two tensors."""
    if not isinstance(second, FastTensor | Tensor):
        raise NoFastPath("torch.max of one tensor")
    return BINARY["maximum"](first, second)


def concatenate(operands: Sequence[Operand], dim: int = 0) -> FastTensor:
    """Concatenate operands [B, F] along the last axis."""
    arrays: list[FastTensor] = list(map(operand, operands))
    values = [array.value for array in arrays]
    if dim not in (-1, values[0].ndim - 1):
        raise NoFastPath("torch.cat along another axis than the last one")
    result = np.concatenate(values, -1)
    tracked = [number for number, array in enumerate(arrays) if array.backward_of is not None]
    if not (tracked and torch.is_grad_enabled()):
        return FastTensor(result)

    def backward(gradient: Array, into: Gradients) -> list[Array]:
        ends = list(accumulate(value.shape[-1] for value in values))
        starts = [0, *ends]
        return [gradient[..., starts[number] : ends[number]] for number in tracked]

    return FastTensor(result, [arrays[number] for number in tracked], backward)


def stack(arrays: Sequence[FastTensor], dim: int = 0) -> FastTensor:
    """Stack n arrays of one shape to [n, ...]."""
    if dim != 0:
        raise NoFastPath("torch.stack along another axis than the first one")
    values = [operand(array).value for array in arrays]
    result = np.empty((len(values), *values[0].shape), values[0].dtype)
    for number, value in enumerate(values):  # `np.stack` takes three times as long
        result[number] = value
    tracked = [number for number, array in enumerate(arrays) if array.backward_of is not None]
    if not (tracked and torch.is_grad_enabled()):
        return FastTensor(result)
    return FastTensor(
        result,
        [arrays[number] for number in tracked],
        lambda gradient, into: [gradient[number] for number in tracked],
    )


def pooled(outputs: FastTensor) -> FastTensor:
    """Put the outputs [n, B, F] of n networks side by side, [B, n * F]."""
    count, rows, width = outputs.value.shape
    return outputs.result(
        outputs.value.transpose(1, 0, 2).reshape(rows, count * width),
        lambda gradient, into: (gradient.reshape(rows, count, width).transpose(1, 0, 2),),
    )


def huber(error: FastTensor) -> FastTensor:
    """Compute the Huber loss: half of the square within 1, and the absolute value minus a half beyond."""
    value = error.value
    loops = loop_module("heads")
    if loops is None or value.ndim != 1 or value.dtype != np.float32:
        inside = error.detach().clamp(-1, 1)
        return inside * (error - 0.5 * inside)
    loss = np.empty_like(value)
    derivative = np.empty_like(value)
    loops.huber(value, loss, derivative)
    return error.result(loss, lambda gradient, into: (gradient * derivative,))


def _softplus(value: FastTensor) -> FastTensor:
    return value.unary(np.logaddexp(0, value.value), lambda: np.exp(-np.logaddexp(0, -value.value)))


def _smooth_l1(
    value: Operand,
    target: Operand,
    *,
    reduction: str = "mean",
    beta: float = 1.0,
    **deprecated: None,
) -> FastTensor:
    if reduction != "none" or beta != 1 or any(deprecated.values()):
        raise NoFastPath(f"smooth_l1_loss with reduction='{reduction}' and beta={beta}")
    return huber(operand(value) - target)


def _square_error(
    value: Operand,
    target: Operand,
    *,
    reduction: str = "mean",
    **deprecated: None,
) -> FastTensor:
    if reduction != "none" or any(deprecated.values()):
        raise NoFastPath(f"mse_loss with reduction='{reduction}'")
    error: FastTensor = operand(value) - target
    return error.square()


FUNCTIONS |= {
    torch.min: _minimum,
    torch.max: _maximum,
    torch.cat: concatenate,
    torch.stack: stack,
    torch.pow: FastTensor.__pow__,
    nn.functional.softplus: _softplus,
    nn.functional.smooth_l1_loss: _smooth_l1,
    nn.functional.mse_loss: _square_error,
}
