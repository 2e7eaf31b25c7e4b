"""Loops of layers, which numba compiles for this processor; each replaces several NumPy calls.

Arrays are contiguous. A loop is compiled at its first call on a machine: numba keeps the result next to this file, or
in the user's cache if that folder is read-only. NaN stays NaN, so that the optimizer finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from rlplug_core.types import Array

F = TypeVar("F", bound=Callable[..., Any])
#: The compiler may change the order of sums, so that it adds eight numbers at once; it may not assume that there is no
#: NaN. Loops have an index of rows, because LLVM does not vectorize loops that iterate over an array.
FAST = {"reassoc", "contract", "arcp", "nsz"}
#: tanh(x) is x p(x²) / q(x²), as in Eigen (`Eigen/src/Core/MathFunctionsImpl.h`), with an error below 3e-7, for x up to
#: this bound. With a larger bound it would exceed 1, and the gradient of a squashed action would change its sign.
BOUND = np.float32(7.905)
#: From here float32 rounds tanh to 1, so that it has no gradient.
FLAT = np.float32(9.011)
P0, P1, P2, P3, P4, P5, P6, Q0, Q1, Q2, Q3 = (
    np.float32(x)
    for x in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
        1.19825839466702e-06,
        1.18534705686654e-04,
        2.26843463243900e-03,
        4.89352518554385e-03,
    )
)
ZERO = np.float32(0)
HALF = np.float32(0.5)
ONE = np.float32(1)


def loop(function: F) -> F:
    """Let numba compile a function at its first call, and keep the result on disk."""
    return _compile(function)


def on_threads(function: F) -> F:
    """Compile as `loop` does, and let threads share the range of `numba.prange`."""
    return _compile(function, parallel=True)


def _compile(function: F, **more: bool) -> F:
    options = {"fastmath": FAST, "error_model": "numpy", **more}
    try:
        result: F = numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder is writable: each process compiles again
        result = numba.njit(function, **options)
    return result


@loop
def _tanh(x: np.float32) -> np.float32:
    z = BOUND if x > BOUND else x
    z = -BOUND if z < -BOUND else z
    y = z * z
    numerator = (((((P0 * y + P1) * y + P2) * y + P3) * y + P4) * y + P5) * y + P6
    value = z * numerator / (((Q0 * y + Q1) * y + Q2) * y + Q3)
    value = ONE if x > FLAT else value
    return -ONE if x < -FLAT else value


@loop
def tanh_forward(values: Array, bias: Array) -> None:
    """Replace values [B, F] by tanh(values + bias [F])."""
    for b in range(values.shape[0]):
        row = values[b]
        for i in range(bias.size):
            row[i] = _tanh(row[i] + bias[i])


@loop
def relu_forward(values: Array, bias: Array) -> None:
    """Replace values [B, F] by max(0, values + bias [F])."""
    for b in range(values.shape[0]):
        row = values[b]
        for i in range(bias.size):
            x = row[i] + bias[i]
            row[i] = ZERO if x < ZERO else x


@loop
def tanh_backward(
    gradient: Array,
    outputs: Array,
    below: Array,
    total: Array,
) -> None:
    """Write gradients [B, F] at the inputs of tanh into `below`, and add their sums over rows to `total` [F]."""
    for b in range(gradient.shape[0]):
        for i in range(total.size):
            inner = gradient[b, i] * (ONE - outputs[b, i] * outputs[b, i])
            below[b, i] = inner
            total[i] += inner


@loop
def relu_backward(
    gradient: Array,
    outputs: Array,
    below: Array,
    total: Array,
) -> None:
    """Write gradients [B, F] at the inputs of ReLU into `below`, and add their sums over rows to `total` [F]."""
    for b in range(gradient.shape[0]):
        for i in range(total.size):
            inner = ZERO if outputs[b, i] <= ZERO else gradient[b, i]
            below[b, i] = inner
            total[i] += inner


#: The forward and the backward loop of each activation.
ACTIVATIONS = {"tanh": (tanh_forward, tanh_backward), "relu": (relu_forward, relu_backward)}
