"""Passes through dense networks on several threads: each task computes some rows of one network.

All networks have the same layers and the same inputs [B, I]. A forward pass saves the outputs of all layers, [n, B * (O
of all layers)], one layer after the other, for the backward pass. SciPy's BLAS computes products.
"""

from __future__ import annotations

from typing import TypeAlias

import numba
import numpy as np

from rlplug_core.fast.loops.layers import (
    ZERO,
    loop,
    on_threads,
    relu_backward,
    relu_forward,
    tanh_backward,
    tanh_forward,
)
from rlplug_core.types import Array

#: The activations of layers, by their numbers.
NAMES = ("", "relu", "tanh")
RELU = 1
TANH = 2
#: Networks: the memory with all parameters; the places of the weight [O, I] and the bias [O] of each layer in it,
#: [n, L, 2]; the number of values before the first layer and after each layer, [L + 1]; the activation of each layer,
#: [L]. It is not a class, because numba's cache is lost if the name of a class changes.
Networks: TypeAlias = tuple[Array, Array, Array, Array]
#: The first row, and the row after the last one.
Rows: TypeAlias = tuple[int, int]
#: Parts of a layer's weights; threads add gradients part by part.
PARTS = 8


@on_threads
def forward(
    networks: Networks,
    values: Array,
    saved: Array,
    blocks: int,
) -> None:
    """Compute all networks for values [B, I], in so many blocks of rows each."""
    count = values.shape[0]
    for task in numba.prange(saved.shape[0] * blocks):
        number = task // blocks
        block = task % blocks
        rows = count * block // blocks, count * (block + 1) // blocks
        _forward(networks, number, values, saved[number], rows)


@on_threads
def backward(
    networks: Networks,
    seen: tuple[Array, Array],
    blocks: int,
    gradient: Array,
    results: tuple[Array, Array],
) -> None:
    """Take gradients [n, B, O] at the outputs back through all networks.

    Args:
        networks: the networks.
        seen: the inputs, and the outputs that `forward` saved.
        blocks: blocks of rows of each network.
        gradient: the gradients at the outputs.
        results: gets, for each block, the gradients [n * blocks, P] at the weights and the bias of one layer after the
            other, and the gradients [n, B, I] at the inputs. An array without room is left out.
    """
    count = seen[0].shape[0]
    for task in numba.prange(gradient.shape[0] * blocks):
        number = task // blocks
        block = task % blocks
        rows = count * block // blocks, count * (block + 1) // blocks
        inside = seen[0], seen[1][number], gradient[number]
        _backward(networks, number, inside, rows, (results[0][task], results[1][number]))


@on_threads
def add(
    networks: Networks,
    block_gradients: Array,
    gradient: Array,
    into: Array,
) -> None:
    """Add gradients [n, blocks, P] of parameters to a flat gradient, at the places `into` [n, L, 2]; -1: nowhere."""
    _, _, sizes, functions = networks
    layers = functions.size
    for task in numba.prange(block_gradients.shape[0] * layers * PARTS):
        number = task // (layers * PARTS)
        layer = task // PARTS % layers
        part = task % PARTS
        _add(block_gradients[number], _layer(sizes, layer), part, gradient, into[number, layer])


@loop
def _forward(
    networks: Networks,
    number: int,
    values: Array,
    saved: Array,
    rows: Rows,
) -> None:
    flat, places, sizes, functions = networks
    start = 0
    inputs = _matrix(values.reshape(-1), 0, rows, sizes[0])
    for n in range(functions.size):
        weight, bias = places[number, n]
        out = sizes[n + 1]
        outputs = _matrix(saved, start, rows, out)
        np.dot(inputs, _matrix(flat, weight, (0, out), sizes[n]).T, outputs)
        _activate(outputs, flat[bias : bias + out], functions[n])
        start = start + values.shape[0] * out
        inputs = outputs


@loop
def _backward(
    networks: Networks,
    number: int,
    seen: tuple[Array, Array, Array],
    rows: Rows,
    results: tuple[Array, Array],
) -> None:
    flat, places, sizes, functions = networks
    values, saved, gradient = seen
    block_gradient, below = results
    count = rows[1] - rows[0]
    start = saved.size
    at = block_gradient.size
    widest = sizes.max()
    totals = np.empty(widest, np.float32)
    space = np.empty((2, count * widest), np.float32)
    passed = _matrix(gradient.reshape(-1), 0, rows, sizes[-1])
    for n in range(functions.size - 1, -1, -1):
        width = sizes[n]
        out = sizes[n + 1]
        start -= values.shape[0] * out
        outputs = _matrix(saved, start, rows, out)
        inner = _matrix(space[0], 0, (0, count), out)
        total = totals[:out]
        _before_activation(passed, outputs, inner, total, functions[n])
        if block_gradient.size:
            at -= out * (width + 1)
            inputs = (
                _matrix(saved, start - values.shape[0] * width, rows, width)
                if n
                else _matrix(values.reshape(-1), 0, rows, width)
            )
            np.dot(inner.T, inputs, _matrix(block_gradient, at, (0, out), width))
            block_gradient[at + out * width : at + out * (width + 1)] = total
        if n or below.size:
            passed = (
                _matrix(space[1], 0, (0, count), width)
                if n
                else _matrix(below.reshape(-1), 0, rows, width)
            )
            np.dot(inner, _matrix(flat, places[number, n, 0], (0, out), width), passed)


@loop
def _matrix(memory: Array, start: int, rows: Rows, width: int) -> Array:
    """Return these rows of the matrix with so many columns that starts at a place of the memory."""
    return memory[start + rows[0] * width : start + rows[1] * width].reshape(
        rows[1] - rows[0], width
    )


@loop
def _activate(outputs: Array, bias: Array, function: int) -> None:
    """Add the bias [O] to outputs [b, O], and replace them by their activation."""
    if function == RELU:
        relu_forward(outputs, bias)
    elif function == TANH:
        tanh_forward(outputs, bias)
    else:
        for b in range(outputs.shape[0]):
            for i in range(bias.size):
                outputs[b, i] += bias[i]


@loop
def _before_activation(
    gradient: Array,
    outputs: Array,
    below: Array,
    total: Array,
    function: int,
) -> None:
    """Write the gradients before an activation into `below` [b, O], and their sum over rows into `total` [O]."""
    total[:] = ZERO
    if function == RELU:
        relu_backward(gradient, outputs, below, total)
    elif function == TANH:
        tanh_backward(gradient, outputs, below, total)
    else:
        for b in range(gradient.shape[0]):
            for i in range(total.size):
                below[b, i] = gradient[b, i]
                total[i] += gradient[b, i]


@loop
def _layer(sizes: Array, layer: int) -> tuple[int, int, int]:
    """Return the start of a layer in a row of gradients, and its numbers of weights and outputs."""
    start = 0
    for n in range(layer):
        start += sizes[n + 1] * (sizes[n] + 1)
    return start, sizes[layer + 1] * sizes[layer], sizes[layer + 1]


@loop
def _add(
    block_gradients: Array,
    layer: tuple[int, int, int],
    part: int,
    gradient: Array,
    into: Array,
) -> None:
    """Add the gradients of all blocks for a part of a layer's weights, and with the first part for its bias."""
    start, weights, outs = layer
    for block in range(block_gradients.shape[0]):
        if into[0] >= 0:
            for i in range(weights * part // PARTS, weights * (part + 1) // PARTS):
                gradient[into[0] + i] += block_gradients[block, start + i]
        if into[1] >= 0 and part == 0:
            for i in range(outs):
                gradient[into[1] + i] += block_gradients[block, start + weights + i]
