"""Loops of one step of a recurrent cell and its backward pass; the equations are torch's (`nn.GRUCell`, `nn.LSTMCell`).

N rows of H units. `before` [N, H] is the state before the step; rows with `valid` [N] False keep it. `x` and `hidden`
[N, gates * H] are products with the cell's weights: of the features, with their bias added, and of `before`, without
`bias`. `saved` contains the numbers that the backward pass needs, several [N, H] side by side.
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
    before: Array,
    valid: Array,
    saved: Array,
    out: Array,
) -> None:
    """Write the next state to `out` [N, H]; `saved` gets the gates r and z, the candidate n, and W h + b for n."""
    units = before.shape[1]
    for b in range(before.shape[0]):
        for j in range(units):
            saved[b, j] = _sigmoid(x[b, j] + hidden[b, j] + bias[j])
            saved[b, units + j] = _sigmoid(x[b, units + j] + hidden[b, units + j] + bias[units + j])
            saved[b, 3 * units + j] = hidden[b, 2 * units + j] + bias[2 * units + j]
        for j in range(units):
            z = saved[b, units + j]
            n = _tanh(x[b, 2 * units + j] + saved[b, j] * saved[b, 3 * units + j])
            saved[b, 2 * units + j] = n
            out[b, j] = n + z * (before[b, j] - n)
        if not valid[b]:
            out[b] = before[b]


@loop
def gru_backward(
    saved: Array,
    valid: Array,
    before: Array,
    gradient: Array,
    carry: Array,
    grad_x: Array,
    grad_hidden: Array,
) -> None:
    """Write the gradients at both products, `grad_x` and `grad_hidden`.

    The gradient at the next state is the sum of `gradient` [N, H] and of `carry`, which comes from the step after it.
    `carry` then gets the gradient at `before`, without the part through the product.
    """
    units = before.shape[1]
    for b in range(before.shape[0]):
        is_valid = valid[b]
        for j in range(units):
            r = saved[b, j]
            z = saved[b, units + j]
            n = saved[b, 2 * units + j]
            inner = saved[b, 3 * units + j]
            total = carry[b, j] + gradient[b, j]
            grad_out = total if is_valid else ZERO
            grad_n = grad_out * (ONE - z) * (ONE - n * n)
            grad_r = grad_n * inner * r * (ONE - r)
            grad_z = grad_out * (before[b, j] - n) * z * (ONE - z)
            grad_x[b, j], grad_x[b, units + j], grad_x[b, 2 * units + j] = grad_r, grad_z, grad_n
            grad_hidden[b, j], grad_hidden[b, units + j], grad_hidden[b, 2 * units + j] = (
                grad_r,
                grad_z,
                grad_n * r,
            )
            carry[b, j] = (ZERO if is_valid else total) + grad_out * z


@loop
def lstm_forward(
    x: Array,
    hidden: Array,
    bias: Array,
    before: Array,
    cell_before: Array,
    valid: Array,
    saved: Array,
    out: Array,
    out_cell: Array,
) -> None:
    """Write both parts of the next state to `out` and `out_cell`; `saved` gets i, f, g, o, and tanh of the new cell."""
    units = before.shape[1]
    for b in range(before.shape[0]):
        for j in range(4 * units):
            saved[b, j] = x[b, j] + hidden[b, j] + bias[j]
        for j in range(units):
            i = _sigmoid(saved[b, j])
            f = _sigmoid(saved[b, units + j])
            o = _sigmoid(saved[b, 3 * units + j])
            g = _tanh(saved[b, 2 * units + j])
            cell = f * cell_before[b, j] + i * g
            squashed = _tanh(cell)
            saved[b, j], saved[b, units + j], saved[b, 2 * units + j] = i, f, g
            saved[b, 3 * units + j], saved[b, 4 * units + j] = o, squashed
            out[b, j], out_cell[b, j] = o * squashed, cell
        if not valid[b]:
            out[b], out_cell[b] = before[b], cell_before[b]


@loop
def lstm_backward(
    saved: Array,
    valid: Array,
    before: Array,
    cell_before: Array,
    gradient: Array,
    gradient_cell: Array,
    carry: Array,
    carry_cell: Array,
    grad_x: Array,
) -> None:
    """Do as `gru_backward` for both parts of the state; the gradients at both products are equal: `grad_x`."""
    units = before.shape[1]
    for b in range(before.shape[0]):
        is_valid = valid[b]
        for j in range(units):
            i = saved[b, j]
            f = saved[b, units + j]
            g = saved[b, 2 * units + j]
            o = saved[b, 3 * units + j]
            squashed = saved[b, 4 * units + j]
            total = carry[b, j] + gradient[b, j]
            total_cell = carry_cell[b, j] + gradient_cell[b, j]
            grad_out = total if is_valid else ZERO
            inner = (total_cell if is_valid else ZERO) + grad_out * o * (ONE - squashed * squashed)
            grad_x[b, j], grad_x[b, units + j] = (
                inner * g * i * (ONE - i),
                inner * cell_before[b, j] * f * (ONE - f),
            )
            grad_x[b, 2 * units + j] = inner * i * (ONE - g * g)
            grad_x[b, 3 * units + j] = grad_out * squashed * o * (ONE - o)
            carry[b, j] = ZERO if is_valid else total
            carry_cell[b, j] = (ZERO if is_valid else total_cell) + inner * f
