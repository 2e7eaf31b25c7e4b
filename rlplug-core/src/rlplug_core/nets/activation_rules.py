"""The activations of `Net` as rules: their values and derivatives in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from rlplug_core.nets.layer_rules import Elementwise
from rlplug_core.types import Array


def _tanh_slope(x: Array, y: Array) -> Array:
    slope: Array = y * y
    return np.subtract(1, slope, out=slope)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _relu_slope(x: Array, y: Array) -> Array:
    positive: Array = y > 0
    return positive


def _leaky_relu(x: Array) -> Array:
    scaled: Array = x * 0.01
    return np.maximum(x, scaled, out=scaled)


def _leaky_relu_slope(x: Array, y: Array) -> Array:
    slope: Array = np.where(x > 0, x.dtype.type(1), x.dtype.type(0.01))
    return slope


def _elu(x: Array) -> Array:
    outputs: Array = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return outputs


def _elu_slope(x: Array, y: Array) -> Array:
    slope: Array = np.minimum(y, 0) + 1
    return slope


def _sigmoid(x: Array) -> Array:
    """(1 + tanh(x / 2)) / 2, which never overflows."""
    half: Array = np.tanh(x * 0.5)
    half += 1
    half *= 0.5
    return half


def _silu(x: Array) -> Array:
    outputs: Array = x * _sigmoid(x)
    return outputs


def _silu_slope(x: Array, y: Array) -> Array:
    """σ + x σ (1 - σ) = σ + y (1 - σ)."""
    share = _sigmoid(x)
    slope: Array = share + y * (1 - share)
    return slope


TANH = Elementwise(np.tanh, _tanh_slope)
RELU = Elementwise(_relu, _relu_slope)
LEAKY_RELU = Elementwise(_leaky_relu, _leaky_relu_slope)
ELU = Elementwise(_elu, _elu_slope)
SILU = Elementwise(_silu, _silu_slope)

#: The rule of each function that an encoder puts between its layers; gelu has none.
FUNCTIONS: dict[Callable[..., Any], Elementwise] = {
    torch.tanh: TANH, torch.relu: RELU, nn.functional.elu: ELU, nn.functional.silu: SILU,
    nn.functional.leaky_relu: LEAKY_RELU,
}  # fmt: skip
