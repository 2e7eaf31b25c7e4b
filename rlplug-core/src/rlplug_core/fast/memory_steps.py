"""One step of a memory's cell and back, in numpy; `compiled_memory` has the same as loops.

The equations are torch's (`nn.GRUCell`, `nn.LSTMCell`). A row that `counts` [N] leaves out keeps what it remembers.
Names: `x` and `hidden` [N, gates * H] are the products of what is seen, with its bias, and of what was `kept` [N, H]
with the cell's weights; `told` [N, more * H] is what the way back asks for.
"""

from __future__ import annotations

import numpy as np

from rlplug_core.types import Array


def gru_up(
    x: Array, hidden: Array, bias: Array, kept: Array, counts: Array, told: Array, out: Array
) -> None:
    """Write what is remembered after the step into `out` [N, H]; `told` has the gates r and z, n, and W h + b of n."""
    units = kept.shape[1]
    r, z, n, inner = (told[:, units * i : units * (i + 1)] for i in range(4))
    hidden = hidden + bias
    r[...] = _sigmoid(x[:, :units] + hidden[:, :units])
    z[...] = _sigmoid(x[:, units : 2 * units] + hidden[:, units : 2 * units])
    inner[...] = hidden[:, 2 * units :]
    n[...] = np.tanh(x[:, 2 * units :] + r * inner)
    out[...] = np.where(counts[:, None], (1 - z) * n + z * kept, kept)


def gru_down(
    told: Array,
    counts: Array,
    kept: Array,
    slopes: Array,
    carry: Array,
    to_x: Array,
    to_hidden: Array,
) -> None:
    """Write the gradients of both products: those of the output are `slopes`, and `carry` from the step behind it.

    `carry` then has the gradient of `kept`, but for what comes through the product.
    """
    units = kept.shape[1]
    r, z, n, inner = (told[:, units * i : units * (i + 1)] for i in range(4))
    carry += slopes
    slope = carry * counts[:, None]
    to_n = slope * (1 - z) * (1 - n * n)
    to_x[:, :units] = to_n * inner * r * (1 - r)
    to_x[:, units : 2 * units] = slope * (kept - n) * z * (1 - z)
    to_x[:, 2 * units :] = to_n
    to_hidden[...] = to_x
    to_hidden[:, 2 * units :] *= r
    carry[...] = np.where(counts[:, None], carry * z, carry)


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
    """The same for both parts; `told` has the gates i, f, g and o, and tanh of the new cell."""
    units = kept.shape[1]
    i, f, g, o, seen = (told[:, units * k : units * (k + 1)] for k in range(5))
    sums = x + hidden + bias
    i[...], f[...] = _sigmoid(sums[:, :units]), _sigmoid(sums[:, units : 2 * units])
    g[...], o[...] = np.tanh(sums[:, 2 * units : 3 * units]), _sigmoid(sums[:, 3 * units :])
    cell = f * kept_cell + i * g
    seen[...] = np.tanh(cell)
    out[...] = np.where(counts[:, None], o * seen, kept)
    out_cell[...] = np.where(counts[:, None], cell, kept_cell)


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
    """The same for both parts; the slopes at both products are alike."""
    units = kept.shape[1]
    i, f, g, o, seen = (told[:, units * k : units * (k + 1)] for k in range(5))
    carry += slopes
    carry_cell += slopes_cell
    slope = carry * counts[:, None]
    inner = carry_cell * counts[:, None] + slope * o * (1 - seen * seen)
    to_x[:, :units] = inner * g * i * (1 - i)
    to_x[:, units : 2 * units] = inner * kept_cell * f * (1 - f)
    to_x[:, 2 * units : 3 * units] = inner * i * (1 - g * g)
    to_x[:, 3 * units :] = slope * seen * o * (1 - o)
    carry[...] = np.where(counts[:, None], 0, carry)
    carry_cell[...] = np.where(counts[:, None], inner * f, carry_cell)


def _sigmoid(values: Array) -> Array:
    found: Array = np.tanh(0.5 * values)
    found *= 0.5
    found += 0.5
    return found
