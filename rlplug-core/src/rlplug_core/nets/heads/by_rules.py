"""Log-probabilities and entropies of heads as nodes: their slopes in closed form."""

from __future__ import annotations

import math

import numpy as np

from rlplug_core.nets.node import Into, Node
from rlplug_core.types import Array


def categorical(outputs: Node, action: Array) -> tuple[Node, Node]:
    """Compute, of logits [B, A] and actions [B], log p[a], with slopes 1{a} - p, and H, with slopes -p (log p + H)."""
    logits, rows = outputs.value, np.arange(len(action))
    ones = np.ones(logits.shape[1], logits.dtype)
    log_probs = logits - np.maximum.reduce(logits, 1, keepdims=True)
    shares = np.exp(log_probs)
    total = shares.dot(ones)[:, None]
    log_probs -= np.log(total)
    shares /= total
    entropy = -(shares * log_probs).dot(ones)

    def of_chosen(slopes: Array, into: Into) -> tuple[Array]:
        found = shares * -slopes[:, None]
        found[rows, action] += slopes
        return (found,)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = log_probs + entropy[:, None]
        found *= shares
        found *= -slopes[:, None]
        return (found,)

    return Node(log_probs[rows, action], (outputs,), of_chosen), Node(entropy, (outputs,), of_entropy)


def gaussian(outputs: Node, action: Array) -> tuple[Node, Node]:
    """Compute, of means and log standard deviations [B, 2 d] and actions [B, ...], with z = (a - mean) / deviation:

    log p, with slopes z / deviation and z² - 1, and H, with slopes 0 and 1.
    """
    dims = outputs.shape[1] // 2
    mean, log_std = outputs.value[:, :dims], outputs.value[:, dims:]
    inverse = np.exp(-log_std)
    scaled = (action.reshape(mean.shape) - mean) * inverse
    log_prob = (-0.5 * np.square(scaled) - log_std).sum(1) - 0.5 * dims * math.log(2 * math.pi)
    entropy = log_std.sum(1) + 0.5 * dims * math.log(2 * math.pi * math.e)

    def of_action(slopes: Array, into: Into) -> tuple[Array]:
        return (np.concatenate([scaled * inverse, np.square(scaled) - 1], 1) * slopes[:, None],)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = np.zeros_like(outputs.value)
        found[:, dims:] = slopes[:, None]
        return (found,)

    return Node(log_prob, (outputs,), of_action), Node(entropy, (outputs,), of_entropy)
