"""Loops of layers that numba compiles for this processor: each does in one call what numpy needs several for.

Imported only where numba is installed (`loops.available`). Arrays are contiguous. A loop is compiled at its first call,
once for a machine: numba keeps it beside this file, or in the user's cache where that cannot be written. What is no
number stays none, so that the optimizer finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from rlplug_core.types import Array

F = TypeVar("F", bound=Callable[..., Any])
#: What may be reckoned otherwise than it is written: sums in another order, so that eight numbers go at a time. Nothing
#: is assumed about numbers that are none. Loops count rows, since those that take them one by one stay scalar.
FAST = {"reassoc", "contract", "arcp", "nsz"}
#: tanh(x) as x p(x²) / q(x²), as in Eigen (`Eigen/src/Core/MathFunctionsImpl.h`), off by less than 3e-7; with a larger
#: bound on x it would pass 1, and the slope of a squashed action change its sign.
BEYOND = np.float32(7.905)
#: From here on float32 rounds tanh to 1, so that it has no gradient.
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
    """Let numba compile `function` at its first call, and keep it where it finds a place to."""
    return _compile(function)


def on_threads(function: F) -> F:
    """The same, with what `numba.prange` counts shared by threads."""
    return _compile(function, parallel=True)


def _compile(function: F, **more: bool) -> F:
    options = {"fastmath": FAST, "error_model": "numpy", **more}
    try:
        made: F = numba.njit(function, cache=True, **options)
    except (
        RuntimeError
    ):  # neither this folder nor the user's cache can be written: each process compiles anew
        made = numba.njit(function, **options)
    return made


@loop
def _tanh(x: np.float32) -> np.float32:
    z = BEYOND if x > BEYOND else x
    z = -BEYOND if z < -BEYOND else z
    y = z * z
    above = (((((P0 * y + P1) * y + P2) * y + P3) * y + P4) * y + P5) * y + P6
    value = z * above / (((Q0 * y + Q1) * y + Q2) * y + Q3)
    value = ONE if x > FLAT else value
    return -ONE if x < -FLAT else value


@loop
def tanh_over(values: Array, bias: Array) -> None:
    """Put tanh(values [B, F] + bias [F]) in the place of the values."""
    for b in range(values.shape[0]):
        row = values[b]
        for i in range(bias.size):
            row[i] = _tanh(row[i] + bias[i])


@loop
def relu_over(values: Array, bias: Array) -> None:
    """Put the larger of values [B, F] + bias [F] and 0 in the place of the values."""
    for b in range(values.shape[0]):
        row = values[b]
        for i in range(bias.size):
            x = row[i] + bias[i]
            row[i] = ZERO if x < ZERO else x


@loop
def tanh_through(slopes: Array, told: Array, below: Array, total: Array) -> None:
    """Slopes [B, F] at tanh's values `told` to those `below` it, and their sum `total` [F] over rows, added to it."""
    for b in range(slopes.shape[0]):
        for i in range(total.size):
            slope = slopes[b, i] * (ONE - told[b, i] * told[b, i])
            below[b, i] = slope
            total[i] += slope


@loop
def relu_through(slopes: Array, told: Array, below: Array, total: Array) -> None:
    """The same for ReLU's values."""
    for b in range(slopes.shape[0]):
        for i in range(total.size):
            slope = ZERO if told[b, i] <= ZERO else slopes[b, i]
            below[b, i] = slope
            total[i] += slope


#: For each activation, what puts its values in the place of a layer's and what takes slopes back through both.
PAIRS = {"tanh": (tanh_over, tanh_through), "relu": (relu_over, relu_through)}
