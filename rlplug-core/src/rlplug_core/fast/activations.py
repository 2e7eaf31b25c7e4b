"""The activations of networks on arrays: their values and derivatives."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import Function
from rlplug_core.fast.constants import zeros
from rlplug_core.fast.layer_ops import ElementwiseOp
from rlplug_core.types import Array


def _tanh_derivative(y: Array) -> Array:
    derivative: Array = y * y
    return np.subtract(1, derivative, out=derivative)


def _relu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, zeros(x.shape, x.dtype), out=out)


def _relu_derivative(y: Array) -> Array:
    return ~(y <= 0)  # so that NaN passes, as in torch


def _leaky_relu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, x * 0.01, out=out)


def _leaky_relu_derivative(y: Array) -> Array:
    return np.where(y > 0, y.dtype.type(1), y.dtype.type(0.01))


def _elu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, np.expm1(np.minimum(x, 0)), out=out)


def _elu_derivative(y: Array) -> Array:
    return np.minimum(y, 0) + 1


def _sigmoid(x: Array) -> Array:
    """Compute (1 + tanh(x / 2)) / 2, which never overflows."""
    result: Array = np.tanh(x * 0.5)
    result += 1
    result *= 0.5
    return result


def _silu(x: Array, out: Array | None) -> Array:
    return np.multiply(x, _sigmoid(x), out=out)


def _silu_derivative(x: Array) -> Array:
    """Compute σ + x σ (1 - σ)."""
    sigmoid = _sigmoid(x)
    return sigmoid + x * sigmoid * (1 - sigmoid)


TANH = ElementwiseOp(np.tanh, _tanh_derivative, name="tanh")
RELU = ElementwiseOp(_relu, _relu_derivative, name="relu")

#: The operation of each function that networks use between their layers; gelu has none.
FUNCTIONS: dict[Function, ElementwiseOp] = {
    torch.tanh: TANH,
    torch.tanh_: TANH,
    Tensor.tanh: TANH,
    torch.relu: RELU,
    torch.relu_: RELU,
    Tensor.relu: RELU,
    nn.functional.relu: RELU,
    nn.functional.elu: ElementwiseOp(_elu, _elu_derivative),
    nn.functional.silu: ElementwiseOp(_silu, _silu_derivative, uses_inputs=True),
    nn.functional.leaky_relu: ElementwiseOp(_leaky_relu, _leaky_relu_derivative),
}
