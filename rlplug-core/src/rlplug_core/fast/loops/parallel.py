"""Passes through dense networks on several threads: each task computes some rows of one network.

All networks have layers of the same sizes, and the same inputs [B, I].
"""

from __future__ import annotations

from typing import TypeAlias

import numba

from rlplug_core.fast.loops import dense
from rlplug_core.fast.loops.layers import loop, on_threads
from rlplug_core.types import Array

#: Networks: the memory with all parameters, and the layers [n, L, 5] of each as in `loops.dense`. It is not a class,
#: because numba's cache is lost if the name of a class changes.
Networks: TypeAlias = tuple[Array, Array]
#: Parts of a layer's weights; threads add gradients part by part.
PARTS = 8


@on_threads
def forward(
    networks: Networks,
    values: Array,
    results: tuple[Array, Array],
    blocks: int,
) -> None:
    """Compute all networks for values [B, I], in so many blocks of rows each.

    Args:
        networks: the networks.
        values: their inputs.
        results: gets the outputs of all layers but the last, [n, B * (O of these layers)], and of the last, [n, B, O].
        blocks: blocks of rows of each network.
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
    seen: tuple[Array, Array, Array],
    blocks: int,
    gradient: Array,
    results: tuple[Array, Array, Array],
) -> None:
    """Take gradients [n, B, O] at the outputs back through all networks.

    Args:
        networks: the networks.
        seen: the inputs of `forward`, and its results.
        blocks: blocks of rows of each network.
        gradient: the gradients at the outputs.
        results: gets, for each block, the gradients [n * blocks, P] at the parameters, whose places in it [L, 2] are
            next, and the gradients [n, B, I] at the inputs. An empty array is left out.
    """
    memory, layers = networks
    values, hidden, outputs = seen
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
    parts: tuple[Array, Array],
    gradient: Array,
    into: Array,
) -> None:
    """Add gradients of parameters to a flat gradient.

    Args:
        layers: [n, L, 5].
        parts: the gradients [n, blocks, P], and the places of the parameters in them [L, 2].
        gradient: the flat gradient.
        into: the places of the parameters in it [n, L, 2]; -1: they are not trained.
    """
    block_gradients, places = parts
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
    """Add the gradients of all blocks for a part of a layer's weights, and with the first part for its bias."""
    outs = layer[3]
    weights = layer[2] * outs
    for block in range(block_gradients.shape[0]):
        if into[0] >= 0:
            for i in range(weights * part // PARTS, weights * (part + 1) // PARTS):
                gradient[into[0] + i] += block_gradients[block, places[0] + i]
        if into[1] >= 0 and part == 0:
            for i in range(outs):
                gradient[into[1] + i] += block_gradients[block, places[1] + i]
