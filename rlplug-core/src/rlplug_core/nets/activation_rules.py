"""The activations of `Net` as rules: their values and derivatives in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from rlplug_core.nets.layer_rules import Elementwise
from rlplug_core.nets.node import zeros
from rlplug_core.types import Array


def _tanh_slope(y: Array) -> Array:
    slope: Array = y * y
    return np.subtract(1, slope, out=slope)


def _relu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, zeros(x.shape, x.dtype), out=out)


def _relu_slope(y: Array) -> Array:
    positive: Array = y > 0
    return positive


def _leaky_relu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, x * 0.01, out=out)


def _leaky_relu_slope(y: Array) -> Array:
    slope: Array = np.where(y > 0, y.dtype.type(1), y.dtype.type(0.01))
    return slope


def _elu(x: Array, out: Array | None) -> Array:
    return np.maximum(x, np.expm1(np.minimum(x, 0)), out=out)


def _elu_slope(y: Array) -> Array:
    slope: Array = np.minimum(y, 0) + 1
    return slope


def _sigmoid(x: Array) -> Array:
    """(1 + tanh(x / 2)) / 2, which never overflows."""
    half: Array = np.tanh(x * 0.5)
    half += 1
    half *= 0.5
    return half


def _silu(x: Array, out: Array | None) -> Array:
    return np.multiply(x, _sigmoid(x), out=out)


def _silu_slope(x: Array) -> Array:
    """σ + x σ (1 - σ)."""
    share = _sigmoid(x)
    slope: Array = share + x * share * (1 - share)
    return slope


TANH = Elementwise(np.tanh, _tanh_slope, name="tanh")
RELU = Elementwise(_relu, _relu_slope, name="relu")
LEAKY_RELU = Elementwise(_leaky_relu, _leaky_relu_slope)
ELU = Elementwise(_elu, _elu_slope)
SILU = Elementwise(_silu, _silu_slope, of_inputs=True)

#: The rule of each function that an encoder puts between its layers; gelu has none.
FUNCTIONS: dict[Callable[..., Any], Elementwise] = {
    torch.tanh: TANH,
    torch.relu: RELU,
    nn.functional.elu: ELU,
    nn.functional.silu: SILU,
    nn.functional.leaky_relu: LEAKY_RELU,
}
