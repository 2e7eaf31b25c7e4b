"""Passes through dense networks on several threads: each task computes some rows of one network.

All networks have layers of the same sizes, and the same inputs [B, I].
"""

from __future__ import annotations

from typing import TypeAlias

import numba

from rlplug_core.fast.loops import dense
from rlplug_core.fast.loops.layers import loop, on_threads
from rlplug_core.types import Array

#: The array of all parameters, and the table of layers of each network [n, L, 5], as in `loops.dense`. It is not a
#: class, because numba's cache would be lost if the name of the class changed.
Networks: TypeAlias = tuple[Array, Array]
#: Number of parts of a layer's weights: `add` has a task for each part.
PARTS = 8


@on_threads
def forward(
    networks: Networks,
    values: Array,
    results: tuple[Array, Array],
    blocks: int,
) -> None:
    """Compute the outputs of all networks.

    Args:
        networks: the networks.
        values: [B, I] their inputs.
        results: gets the outputs of all layers but the last, a vector for each network and block as in `loops.dense`,
            and the outputs [n, B, O] of the last.
        blocks: number of blocks of rows; each block of each network is a task.
    """
    memory, layers = networks
    hidden, outputs = results
    count = values.shape[0]
    units = hidden.shape[1] // count
    for task in numba.prange(layers.shape[0] * blocks):
        number = task // blocks
        start = count * (task % blocks) // blocks
        end = count * (task % blocks + 1) // blocks
        dense.forward(
            memory,
            layers[number],
            values[start:end],
            hidden[number, start * units : end * units],
            outputs[number, start:end],
        )


@on_threads
def backward(
    networks: Networks,
    forward_pass: tuple[Array, Array, Array],
    blocks: int,
    gradient: Array,
    results: tuple[Array, Array, Array],
) -> None:
    """Propagate gradients [n, B, O] at the outputs back through all networks.

    Args:
        networks: the networks.
        forward_pass: the inputs of `forward`, and its results.
        blocks: number of blocks of rows, as in `forward`.
        gradient: the gradients at the outputs.
        results: three arrays. The first gets the gradients at the parameters [n * blocks, P], a row for each block; the
            second has the places [L, 2] of weights and biases in its rows; the third gets the gradients at the inputs
            [n, B, I]. Gradients for an empty array are not computed.
    """
    memory, layers = networks
    values, hidden, outputs = forward_pass
    block_gradients, places, below = results
    count = values.shape[0]
    units = hidden.shape[1] // count
    for task in numba.prange(layers.shape[0] * blocks):
        number = task // blocks
        start = count * (task % blocks) // blocks
        end = count * (task % blocks + 1) // blocks
        dense.backward(
            memory,
            layers[number],
            values[start:end],
            hidden[number, start * units : end * units],
            outputs[number, start:end],
            gradient[number, start:end],
            block_gradients[task],
            places,
            below[number, start:end],
        )


@on_threads
def add(
    layers: Array,
    block_results: tuple[Array, Array],
    gradient: Array,
    into: Array,
) -> None:
    """Add the gradients of all blocks to a flat gradient.

    Args:
        layers: [n, L, 5] the tables of layers.
        block_results: the gradients at the parameters [n, blocks, P], and the places [L, 2] of weights and biases in P.
        gradient: the flat gradient.
        into: [n, L, 2] places of weights and biases in the flat gradient; -1: they are not trained.
    """
    block_gradients, places = block_results
    count = layers.shape[1]
    for task in numba.prange(block_gradients.shape[0] * count * PARTS):
        number = task // (count * PARTS)
        n = task // PARTS % count
        _add(
            block_gradients[number],
            layers[number, n],
            places[n],
            task % PARTS,
            gradient,
            into[number, n],
        )


@loop
def _add(
    block_gradients: Array,
    layer: Array,
    places: Array,
    part: int,
    gradient: Array,
    into: Array,
) -> None:
    """Add the gradients of all blocks for a part of a layer's weights; the first part adds those of the bias, too."""
    outs = layer[3]
    weights = layer[2] * outs
    for block in range(block_gradients.shape[0]):
        if into[0] >= 0:
            for i in range(weights * part // PARTS, weights * (part + 1) // PARTS):
                gradient[into[0] + i] += block_gradients[block, places[0] + i]
        if into[1] >= 0 and part == 0:
            for i in range(outs):
                gradient[into[1] + i] += block_gradients[block, places[1] + i]
