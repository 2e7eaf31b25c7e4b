"""Loops of acting, for a few rows B."""

from __future__ import annotations

import math

import numpy as np

from rlplug_core.fast.loops.layers import ZERO, loop, relu_forward, tanh_forward
from rlplug_core.types import Array


@loop
def _product(values: Array, weight: Array) -> Array:
    """Return the product of values [B, I] and a transposed weight [O, I]."""
    outputs = np.empty((values.shape[0], weight.shape[0]), np.float32)
    for b in range(values.shape[0]):
        row = values[b]
        row_outputs = outputs[b]
        for o in range(row_outputs.size):
            weight_row = weight[o]
            total = ZERO
            for i in range(row.size):
                total += row[i] * weight_row[i]
            row_outputs[o] = total
    return outputs


@loop
def mlp_outputs(
    values: Array,
    hidden: tuple[tuple[Array, Array], ...],
    last: tuple[Array, Array],
    use_tanh: bool,
) -> Array:
    """Compute a network's outputs for values [B, F].

    Args:
        values: [B, F].
        hidden: the weight [O, I] and the bias [O] of each hidden layer.
        last: the weight and the bias of the last layer.
        use_tanh: whether the activation is tanh; if not, it is ReLU.
    """
    for weight, bias in hidden:
        values = _product(values, weight)
        if use_tanh:
            tanh_forward(values, bias)
        else:
            relu_forward(values, bias)
    outputs = _product(values, last[0])
    bias = last[1]
    for b in range(outputs.shape[0]):
        for o in range(bias.size):
            outputs[b, o] += bias[o]
    return outputs


@loop
def sample(outputs: Array, noise: Array) -> Array:
    """Return actions [B, d] from means and log standard deviations [B, 2 d] and standard normal noise [B, d]."""
    action = np.empty(noise.shape, np.float32)
    dims = noise.shape[1]
    for b in range(noise.shape[0]):
        for i in range(dims):
            action[b, i] = outputs[b, i] + math.exp(outputs[b, dims + i]) * noise[b, i]
    return action


@loop
def log_prob(outputs: Array, action: Array, constant: float) -> Array:
    """Return log p [B] of actions [B, d] for means and log standard deviations [B, 2 d]; `constant` is a term of it."""
    log_probs = np.empty(action.shape[0], np.float32)
    dims = action.shape[1]
    for b in range(action.shape[0]):
        total = np.float32(constant)
        for i in range(dims):
            scaled = (action[b, i] - outputs[b, i]) * math.exp(-outputs[b, dims + i])
            total -= np.float32(0.5) * scaled * scaled + outputs[b, dims + i]
        log_probs[b] = total
    return log_probs
