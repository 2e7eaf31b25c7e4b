"""Loops of dense networks: one call computes all layers forward, another one backward. SciPy's BLAS computes products.

`layers` [L, 5] has a row for each layer: the places of its weight [O, I] and of its bias [O] in `memory`, the array
of all parameters, its numbers of inputs and outputs, and its activation. Arrays are contiguous and not read-only.
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

#: The names of the activations; their positions are the numbers in `layers`.
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
    """Compute outputs [B, O] for values [B, I]; `hidden` gets the outputs of the other layers, one after another."""
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
    """Propagate a gradient [B, O] at the outputs back through a network.

    Args:
        memory, layers: the network.
        values, hidden, outputs: the inputs of `forward` and its results.
        gradient: the gradient at the outputs.
        weight_gradients: gets the gradients at the parameters; empty: they are not computed.
        places: [L, 2] places of the weights and biases in `weight_gradients`.
        below: gets the gradient [B, I] at the inputs; empty: it is not computed.
    """
    rows = values.shape[0]
    last = layers.shape[0] - 1
    widest = 0
    for n in range(last + 1):
        widest = max(widest, layers[n, 2], layers[n, 3])
    scratch = np.empty((2, rows * widest), np.float32)
    totals = np.empty(widest, np.float32)
    start = hidden.size
    for n in range(last, -1, -1):
        weight, _, width, out, activation = layers[n]
        result = outputs if n == last else _matrix(hidden, start, rows, out)
        start -= rows * width
        inner = _matrix(scratch[0], 0, rows, out)
        bias = places[n, 1]
        total = weight_gradients[bias : bias + out] if weight_gradients.size else totals[:out]
        _before_activation(gradient, result, inner, total, activation)
        if weight_gradients.size:
            inputs = _matrix(hidden, start, rows, width) if n else values
            np.dot(inner.T, inputs, _matrix(weight_gradients, places[n, 0], out, width))
        if n:
            gradient = _matrix(scratch[1], 0, rows, width)
            np.dot(inner, _matrix(memory, weight, out, width), gradient)
        elif below.size:
            np.dot(inner, _matrix(memory, weight, out, width), below)


@loop
def _matrix(memory: Array, start: int, rows: int, width: int) -> Array:
    """Return the matrix [rows, width] that starts at the place `start` of `memory`."""
    return memory[start : start + rows * width].reshape(rows, width)


@loop
def _activate(outputs: Array, bias: Array, activation: int) -> None:
    """Replace outputs [B, O] by the activation of outputs + bias [O]."""
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
    """Write gradients at the inputs of an activation into `below` [B, O], and their sums over rows into `total` [O]."""
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
        if total.size == 1:  # the same bits as the product of NumPy
            total[0] = np.dot(ones, gradient.reshape(-1))
        else:
            np.dot(ones, gradient, total)
