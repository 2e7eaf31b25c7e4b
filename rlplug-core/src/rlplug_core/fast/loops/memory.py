"""The steps of `memory_steps` as loops that numba compiles; imported only where it is installed."""

from __future__ import annotations

import numpy as np

from rlplug_core.fast.loops.layers import HALF, ONE, ZERO, _tanh, loop
from rlplug_core.types import Array


@loop
def _sigmoid(x: np.float32) -> np.float32:
    return HALF * _tanh(HALF * x) + HALF


@loop
def gru_up(
    x: Array, hidden: Array, bias: Array, kept: Array, counts: Array, told: Array, out: Array
) -> None:
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        for j in range(units):
            told[b, j] = _sigmoid(x[b, j] + hidden[b, j] + bias[j])
            told[b, units + j] = _sigmoid(x[b, units + j] + hidden[b, units + j] + bias[units + j])
            told[b, 3 * units + j] = hidden[b, 2 * units + j] + bias[2 * units + j]
        for j in range(units):
            z = told[b, units + j]
            n = _tanh(x[b, 2 * units + j] + told[b, j] * told[b, 3 * units + j])
            told[b, 2 * units + j] = n
            out[b, j] = n + z * (kept[b, j] - n)
        if not counts[b]:
            out[b] = kept[b]


@loop
def gru_down(
    told: Array,
    counts: Array,
    kept: Array,
    slopes: Array,
    carry: Array,
    to_x: Array,
    to_hidden: Array,
) -> None:
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        here = ONE if counts[b] else ZERO
        for j in range(units):
            r = told[b, j]
            z = told[b, units + j]
            n = told[b, 2 * units + j]
            inner = told[b, 3 * units + j]
            total = carry[b, j] + slopes[b, j]
            slope = total * here
            to_n = slope * (ONE - z) * (ONE - n * n)
            to_r = to_n * inner * r * (ONE - r)
            to_z = slope * (kept[b, j] - n) * z * (ONE - z)
            to_x[b, j], to_x[b, units + j], to_x[b, 2 * units + j] = to_r, to_z, to_n
            to_hidden[b, j], to_hidden[b, units + j], to_hidden[b, 2 * units + j] = (
                to_r,
                to_z,
                to_n * r,
            )
            carry[b, j] = total - slope + slope * z


@loop
def lstm_up(
    x: Array,
    hidden: Array,
    bias: Array,
    kept: Array,
    kept_cell: Array,
    counts: Array,
    told: Array,
    out: Array,
    out_cell: Array,
) -> None:
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        for j in range(4 * units):
            told[b, j] = x[b, j] + hidden[b, j] + bias[j]
        for j in range(units):
            i = _sigmoid(told[b, j])
            f = _sigmoid(told[b, units + j])
            o = _sigmoid(told[b, 3 * units + j])
            g = _tanh(told[b, 2 * units + j])
            cell = f * kept_cell[b, j] + i * g
            seen = _tanh(cell)
            told[b, j], told[b, units + j], told[b, 2 * units + j] = i, f, g
            told[b, 3 * units + j], told[b, 4 * units + j] = o, seen
            out[b, j], out_cell[b, j] = o * seen, cell
        if not counts[b]:
            out[b], out_cell[b] = kept[b], kept_cell[b]


@loop
def lstm_down(
    told: Array,
    counts: Array,
    kept: Array,
    kept_cell: Array,
    slopes: Array,
    slopes_cell: Array,
    carry: Array,
    carry_cell: Array,
    to_x: Array,
) -> None:
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        here = ONE if counts[b] else ZERO
        for j in range(units):
            i = told[b, j]
            f = told[b, units + j]
            g = told[b, 2 * units + j]
            o = told[b, 3 * units + j]
            seen = told[b, 4 * units + j]
            total = carry[b, j] + slopes[b, j]
            total_cell = carry_cell[b, j] + slopes_cell[b, j]
            slope = total * here
            inner = total_cell * here + slope * o * (ONE - seen * seen)
            to_x[b, j], to_x[b, units + j] = (
                inner * g * i * (ONE - i),
                inner * kept_cell[b, j] * f * (ONE - f),
            )
            to_x[b, 2 * units + j] = inner * i * (ONE - g * g)
            to_x[b, 3 * units + j] = slope * seen * o * (ONE - o)
            carry[b, j] = total - slope
            carry_cell[b, j] = total_cell * (ONE - here) + inner * f
