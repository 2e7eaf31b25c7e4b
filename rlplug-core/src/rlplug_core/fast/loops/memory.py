"""Loops of one step of a recurrent cell and its backward pass; the equations are torch's (`nn.GRUCell`, `nn.LSTMCell`).

N rows of H units. A row that `counts` [N] leaves out keeps its state. `x` and `hidden` [N, gates * H] are the products
of the features, with their bias, and of the state `kept` [N, H] with the cell's weights. `saved` [N, more * H] has the
numbers that the backward pass needs.
"""

from __future__ import annotations

import numpy as np

from rlplug_core.fast.loops.layers import HALF, ONE, ZERO, _tanh, loop
from rlplug_core.types import Array


@loop
def _sigmoid(x: np.float32) -> np.float32:
    return HALF * _tanh(HALF * x) + HALF


@loop
def gru_forward(
    x: Array,
    hidden: Array,
    bias: Array,
    kept: Array,
    counts: Array,
    saved: Array,
    out: Array,
) -> None:
    """Write the next state to `out` [N, H]; `saved` gets the gates r and z, then n, and W h + b of n."""
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        for j in range(units):
            saved[b, j] = _sigmoid(x[b, j] + hidden[b, j] + bias[j])
            saved[b, units + j] = _sigmoid(x[b, units + j] + hidden[b, units + j] + bias[units + j])
            saved[b, 3 * units + j] = hidden[b, 2 * units + j] + bias[2 * units + j]
        for j in range(units):
            z = saved[b, units + j]
            n = _tanh(x[b, 2 * units + j] + saved[b, j] * saved[b, 3 * units + j])
            saved[b, 2 * units + j] = n
            out[b, j] = n + z * (kept[b, j] - n)
        if not counts[b]:
            out[b] = kept[b]


@loop
def gru_backward(
    saved: Array,
    counts: Array,
    kept: Array,
    gradient: Array,
    carry: Array,
    at_x: Array,
    at_hidden: Array,
) -> None:
    """Write the gradients of both products, from `gradient` [N, H] and from `carry`, that of the next step.

    `carry` gets the gradient of `kept`, without the part through the product.
    """
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        here = counts[b]
        for j in range(units):
            r = saved[b, j]
            z = saved[b, units + j]
            n = saved[b, 2 * units + j]
            inner = saved[b, 3 * units + j]
            total = carry[b, j] + gradient[b, j]
            slope = total if here else ZERO
            to_n = slope * (ONE - z) * (ONE - n * n)
            to_r = to_n * inner * r * (ONE - r)
            to_z = slope * (kept[b, j] - n) * z * (ONE - z)
            at_x[b, j], at_x[b, units + j], at_x[b, 2 * units + j] = to_r, to_z, to_n
            at_hidden[b, j], at_hidden[b, units + j], at_hidden[b, 2 * units + j] = (
                to_r,
                to_z,
                to_n * r,
            )
            carry[b, j] = (ZERO if here else total) + slope * z


@loop
def lstm_forward(
    x: Array,
    hidden: Array,
    bias: Array,
    kept: Array,
    kept_cell: Array,
    counts: Array,
    saved: Array,
    out: Array,
    out_cell: Array,
) -> None:
    """The same for both parts of the state; `saved` gets the gates i, f, g and o, and tanh of the new cell."""
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        for j in range(4 * units):
            saved[b, j] = x[b, j] + hidden[b, j] + bias[j]
        for j in range(units):
            i = _sigmoid(saved[b, j])
            f = _sigmoid(saved[b, units + j])
            o = _sigmoid(saved[b, 3 * units + j])
            g = _tanh(saved[b, 2 * units + j])
            cell = f * kept_cell[b, j] + i * g
            squashed = _tanh(cell)
            saved[b, j], saved[b, units + j], saved[b, 2 * units + j] = i, f, g
            saved[b, 3 * units + j], saved[b, 4 * units + j] = o, squashed
            out[b, j], out_cell[b, j] = o * squashed, cell
        if not counts[b]:
            out[b], out_cell[b] = kept[b], kept_cell[b]


@loop
def lstm_backward(
    saved: Array,
    counts: Array,
    kept: Array,
    kept_cell: Array,
    gradient: Array,
    gradient_cell: Array,
    carry: Array,
    carry_cell: Array,
    at_x: Array,
) -> None:
    """The same for both parts; the gradients of both products are equal."""
    units = kept.shape[1]
    for b in range(kept.shape[0]):
        here = counts[b]
        for j in range(units):
            i = saved[b, j]
            f = saved[b, units + j]
            g = saved[b, 2 * units + j]
            o = saved[b, 3 * units + j]
            squashed = saved[b, 4 * units + j]
            total = carry[b, j] + gradient[b, j]
            total_cell = carry_cell[b, j] + gradient_cell[b, j]
            slope = total if here else ZERO
            inner = (total_cell if here else ZERO) + slope * o * (ONE - squashed * squashed)
            at_x[b, j], at_x[b, units + j] = (
                inner * g * i * (ONE - i),
                inner * kept_cell[b, j] * f * (ONE - f),
            )
            at_x[b, 2 * units + j] = inner * i * (ONE - g * g)
            at_x[b, 3 * units + j] = slope * squashed * o * (ONE - o)
            carry[b, j] = ZERO if here else total
            carry_cell[b, j] = (ZERO if here else total_cell) + inner * f
