"""Loops of dense networks: all layers forward in one call, and backward in another. SciPy's BLAS computes products.

`layers` [L, 5] has a row for each layer: the places of its weight [O, I] and of its bias [O] in the memory of all
parameters, the numbers of its inputs and outputs, and its activation. Arrays are contiguous and not read-only.
"""

from __future__ import annotations

import numpy as np

from rlplug_core.fast.loops.layers import (
    ONE,
    ZERO,
    loop,
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


@loop
def forward(
    memory: Array,
    layers: Array,
    values: Array,
    hidden: Array,
    outputs: Array,
) -> None:
    """Compute outputs [B, O] for values [B, I]; `hidden` gets the outputs of all other layers, one after the other."""
    rows = values.shape[0]
    last = layers.shape[0] - 1
    start = 0
    for n in range(last + 1):
        weight, bias, width, out, activation = layers[n]
        result = _matrix(hidden, start, rows, out) if n < last else outputs
        np.dot(values, _matrix(memory, weight, out, width).T, result)
        _activate(result, memory[bias : bias + out], activation)
        start += rows * out
        values = result


@loop
def backward(
    memory: Array,
    layers: Array,
    values: Array,
    hidden: Array,
    outputs: Array,
    gradient: Array,
    weight_gradients: Array,
    places: Array,
    below: Array,
) -> None:
    """Take a gradient [B, O] at the outputs back through a network.

    Args:
        memory, layers: the network.
        values, hidden, outputs: the inputs of `forward` and its results.
        gradient: the gradient at the outputs.
        weight_gradients: gets the gradients at the parameters, whose places in it are `places` [L, 2].
        below: gets the gradient [B, I] at the inputs. An empty `weight_gradients` or `below` is left out.
    """
    rows = values.shape[0]
    last = layers.shape[0] - 1
    widest = 0
    for n in range(last + 1):
        widest = max(widest, layers[n, 2], layers[n, 3])
    space = np.empty((2, rows * widest), np.float32)
    totals = np.empty(widest, np.float32)
    start = hidden.size
    for n in range(last, -1, -1):
        weight, _, width, out, activation = layers[n]
        result = outputs if n == last else _matrix(hidden, start, rows, out)
        start -= rows * width
        inner = _matrix(space[0], 0, rows, out)
        bias = places[n, 1]
        total = weight_gradients[bias : bias + out] if weight_gradients.size else totals[:out]
        _before_activation(gradient, result, inner, total, activation)
        if weight_gradients.size:
            inputs = _matrix(hidden, start, rows, width) if n else values
            np.dot(inner.T, inputs, _matrix(weight_gradients, places[n, 0], out, width))
        if n:
            gradient = _matrix(space[1], 0, rows, width)
            np.dot(inner, _matrix(memory, weight, out, width), gradient)
        elif below.size:
            np.dot(inner, _matrix(memory, weight, out, width), below)


@loop
def _matrix(memory: Array, start: int, rows: int, width: int) -> Array:
    """Return the matrix of this shape that starts at a place of the memory."""
    return memory[start : start + rows * width].reshape(rows, width)


@loop
def _activate(outputs: Array, bias: Array, activation: int) -> None:
    """Add the bias [O] to outputs [B, O], and replace them by their activation."""
    if activation == RELU:
        relu_forward(outputs, bias)
    elif activation == TANH:
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
    activation: int,
) -> None:
    """Write the gradients before an activation into `below` [B, O], and their sum over rows into `total` [O]."""
    for i in range(total.size):
        total[i] = ZERO
    if activation == RELU:
        relu_backward(gradient, outputs, below, total)
    elif activation == TANH:
        tanh_backward(gradient, outputs, below, total)
    else:
        ones = np.empty(gradient.shape[0], np.float32)
        for b in range(gradient.shape[0]):
            ones[b] = ONE
            for i in range(total.size):
                below[b, i] = gradient[b, i]
        if total.size == 1:  # the same bits as NumPy's product of these
            total[0] = np.dot(ones, gradient.reshape(-1))
        else:
            np.dot(ones, gradient, total)
