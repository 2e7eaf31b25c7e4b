"""Whole passes through dense networks that numba compiles: each task takes some rows through one network, on a thread.

Networks of one form see the same values [B, I]. A way up keeps an array [n, B * (O of all layers)], one layer after
the other, for the way down. Products are made by SciPy's BLAS.
"""

from __future__ import annotations

from typing import TypeAlias

import numba
import numpy as np

from rlplug_core.fast.loops.layers import (
    ZERO,
    loop,
    on_threads,
    relu_over,
    relu_through,
    tanh_over,
    tanh_through,
)
from rlplug_core.types import Array

#: Functions behind layers, by their numbers.
NAMES = ("", "relu", "tanh")
RELU = 1
TANH = 2
#: Networks of the same dense layers: all memory in which their parameters are somewhere; where the weights [O, I] and
#: the bias [O] of each layer begin there, [n, L, 2]; how many numbers there are before and behind layers, [L + 1]; and
#: which function follows each, [L]. No class of ours: what numba keeps of a signature would not outlive its name.
Networks: TypeAlias = tuple[Array, Array, Array, Array]
#: The first row and the one behind the last.
Rows: TypeAlias = tuple[int, int]
#: Parts of a layer's weights that threads share out to add them up.
PARTS = 8


@on_threads
def up(networks: Networks, values: Array, kept: Array, blocks: int) -> None:
    """Take values [B, I] up through all networks, in so many blocks of rows each."""
    count = values.shape[0]
    for task in numba.prange(kept.shape[0] * blocks):
        number = task // blocks
        block = task % blocks
        _up(
            networks,
            number,
            values,
            kept[number],
            (count * block // blocks, count * (block + 1) // blocks),
        )


@on_threads
def down(
    networks: Networks,
    seen: tuple[Array, Array],
    blocks: int,
    slopes: Array,
    found: tuple[Array, Array],
) -> None:
    """Take slopes [n, B, O] down again, with the values and what `up` has `seen` on the way.

    What is `found` are the slopes [n * blocks, P] that each block has at the weights and the bias of one layer after
    the other, and those at the values, [n, B, I]. Nobody wants what has no room.
    """
    count = seen[0].shape[0]
    for task in numba.prange(slopes.shape[0] * blocks):
        number = task // blocks
        block = task % blocks
        rows = count * block // blocks, count * (block + 1) // blocks
        _down(
            networks,
            number,
            (seen[0], seen[1][number], slopes[number]),
            rows,
            (found[0][task], found[1][number]),
        )


@on_threads
def add(networks: Networks, own: Array, gradient: Array, into: Array) -> None:
    """Add slopes [n, blocks, P] at parameters to a gradient; `into` [n, L, 2] says where, -1 being nowhere."""
    _, _, sizes, functions = networks
    layers = functions.size
    for task in numba.prange(own.shape[0] * layers * PARTS):
        number = task // (layers * PARTS)
        layer = task // PARTS % layers
        part = task % PARTS
        _add(own[number], _layer(sizes, layer), part, gradient, into[number, layer])


@loop
def _up(networks: Networks, number: int, values: Array, kept: Array, rows: Rows) -> None:
    (flat, places, sizes, functions), begin = networks, 0
    inputs = _matrix(values.reshape(-1), 0, rows, sizes[0])
    for n in range(functions.size):
        (weight, bias), out = places[number, n], sizes[n + 1]
        outputs = _matrix(kept, begin, rows, out)
        np.dot(inputs, _matrix(flat, weight, (0, out), sizes[n]).T, outputs)
        _ahead(outputs, flat[bias : bias + out], functions[n])
        begin = begin + values.shape[0] * out
        inputs = outputs


@loop
def _down(
    networks: Networks,
    number: int,
    seen: tuple[Array, Array, Array],
    rows: Rows,
    found: tuple[Array, Array],
) -> None:
    (flat, places, sizes, functions), (values, kept, slopes), (own, below) = networks, seen, found
    count = rows[1] - rows[0]
    begin = kept.size
    at = own.size
    widest = sizes.max()
    totals = np.empty(widest, np.float32)
    space = np.empty((2, count * widest), np.float32)
    passed = _matrix(slopes.reshape(-1), 0, rows, sizes[-1])
    for n in range(functions.size - 1, -1, -1):
        width = sizes[n]
        out = sizes[n + 1]
        begin -= values.shape[0] * out
        told = _matrix(kept, begin, rows, out)
        slope = _matrix(space[0], 0, (0, count), out)
        total = totals[:out]
        _back(passed, told, slope, total, functions[n])
        if own.size:
            at -= out * (width + 1)
            inputs = (
                _matrix(kept, begin - values.shape[0] * width, rows, width)
                if n
                else _matrix(values.reshape(-1), 0, rows, width)
            )
            np.dot(slope.T, inputs, _matrix(own, at, (0, out), width))
            own[at + out * width : at + out * (width + 1)] = total
        if n or below.size:
            passed = (
                _matrix(space[1], 0, (0, count), width)
                if n
                else _matrix(below.reshape(-1), 0, rows, width)
            )
            np.dot(slope, _matrix(flat, places[number, n, 0], (0, out), width), passed)


@loop
def _matrix(memory: Array, begin: int, rows: Rows, width: int) -> Array:
    """These rows of the matrix of so many columns that begins there."""
    return memory[begin + rows[0] * width : begin + rows[1] * width].reshape(
        rows[1] - rows[0], width
    )


@loop
def _ahead(outputs: Array, bias: Array, function: int) -> None:
    """Put the function of outputs [b, O] and bias [O] in the place of the outputs."""
    if function == RELU:
        relu_over(outputs, bias)
    elif function == TANH:
        tanh_over(outputs, bias)
    else:
        for b in range(outputs.shape[0]):
            for i in range(bias.size):
                outputs[b, i] += bias[i]


@loop
def _back(slopes: Array, told: Array, below: Array, total: Array, function: int) -> None:
    """Take slopes [b, O] at a function's values to those `below` it, and to their sum `total` [O] over rows."""
    total[:] = ZERO
    if function == RELU:
        relu_through(slopes, told, below, total)
    elif function == TANH:
        tanh_through(slopes, told, below, total)
    else:
        for b in range(slopes.shape[0]):
            for i in range(total.size):
                below[b, i] = slopes[b, i]
                total[i] += slopes[b, i]


@loop
def _layer(sizes: Array, layer: int) -> tuple[int, int, int]:
    """A layer's begin in a row of slopes, and its numbers of weights and outputs."""
    begin = 0
    for n in range(layer):
        begin += sizes[n + 1] * (sizes[n] + 1)
    return begin, sizes[layer + 1] * sizes[layer], sizes[layer + 1]


@loop
def _add(own: Array, layer: tuple[int, int, int], part: int, gradient: Array, into: Array) -> None:
    """Add what blocks found for a part of a layer's weights, and with the first part for its bias."""
    begin, weights, outs = layer
    for block in range(own.shape[0]):
        if into[0] >= 0:
            for i in range(weights * part // PARTS, weights * (part + 1) // PARTS):
                gradient[into[0] + i] += own[block, begin + i]
        if into[1] >= 0 and part == 0:
            for i in range(outs):
                gradient[into[1] + i] += own[block, begin + weights + i]
