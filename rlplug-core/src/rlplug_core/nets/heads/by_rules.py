"""Log-probabilities and entropies of heads as nodes: their slopes in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from rlplug_core.nets.loops import head_loops
from rlplug_core.nets.node import Into, Node, ones, row_numbers
from rlplug_core.types import Array


def categorical(outputs: Node, action: Array) -> tuple[Node, Node]:
    """Compute, of logits [B, A] and actions [B], log p[a], with slopes 1{a} - p, and H, with slopes -p (log p + H)."""
    logits = outputs.value
    if (loops := loops_for(logits)) is not None:
        return _categorical(loops, outputs, action)
    rows = row_numbers(len(action))
    each = ones(logits.shape[1], logits.dtype)
    highest = np.maximum.reduce(
        np.ascontiguousarray(logits.T)
    )  # along rows of few numbers it takes six times as long
    log_probs = logits - highest[:, None]
    shares = np.exp(log_probs)
    total = shares.dot(each)[:, None]
    log_probs -= np.log(total)
    shares /= total
    entropy = -(shares * log_probs).dot(each)

    def of_chosen(slopes: Array, into: Into) -> tuple[Array]:
        found = shares * -slopes[:, None]
        found[rows, action] += slopes
        return (found,)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = log_probs + entropy[:, None]
        found *= shares
        found *= -slopes[:, None]
        return (found,)

    return Node(log_probs[rows, action], (outputs,), of_chosen), Node(
        entropy, (outputs,), of_entropy
    )


def gaussian(outputs: Node, action: Array) -> tuple[Node, Node]:
    """Compute, of means and log standard deviations [B, 2 d] and actions [B, ...], with z = (a - mean) / deviation:

    log p, with slopes z / deviation and z² - 1, and H, with slopes 0 and 1.
    """
    dims = outputs.shape[1] // 2
    if (loops := loops_for(outputs.value)) is not None:
        return _gaussian(loops, outputs, action)
    mean = outputs.value[:, :dims]
    log_std = outputs.value[:, dims:]
    inverse = np.exp(-log_std)
    each = ones(dims, mean.dtype)
    scaled = (action.reshape(mean.shape) - mean) * inverse
    square = np.square(scaled)
    deviations = log_std.dot(each)
    log_prob = square.dot(each) * -0.5 - deviations - 0.5 * dims * math.log(2 * math.pi)
    entropy = deviations + 0.5 * dims * math.log(2 * math.pi * math.e)

    def of_action(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty_like(outputs.value)
        np.multiply(scaled, inverse, out=found[:, :dims])
        np.subtract(square, 1, out=found[:, dims:])
        found *= slopes[:, None]
        return (found,)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = np.zeros_like(outputs.value)
        found[:, dims:] = slopes[:, None]
        return (found,)

    return Node(log_prob, (outputs,), of_action), Node(entropy, (outputs,), of_entropy)


def loops_for(
    outputs: Array, which: Callable[[], ModuleType | None] = head_loops
) -> ModuleType | None:
    """Return numba's loops if they take these outputs."""
    return which() if outputs.dtype == np.float32 and outputs.flags.c_contiguous else None


def _categorical(loops: ModuleType, outputs: Node, action: Array) -> tuple[Node, Node]:
    shape = outputs.shape
    kind = outputs.value.dtype
    log_probs = np.empty(shape, kind)
    shares = np.empty(shape, kind)
    chosen = np.empty(shape[0], kind)
    entropy = np.empty(shape[0], kind)
    loops.categorical(outputs.value, action, log_probs, shares, chosen, entropy)

    def of_chosen(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty(shape, kind)
        loops.of_chosen(slopes, shares, action, found)
        return (found,)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty(shape, kind)
        loops.of_entropy(slopes, shares, log_probs, entropy, found)
        return (found,)

    return Node(chosen, (outputs,), of_chosen), Node(entropy, (outputs,), of_entropy)


def _gaussian(loops: ModuleType, outputs: Node, action: Array) -> tuple[Node, Node]:
    (rows, width), kind = outputs.shape, outputs.value.dtype
    dims = width // 2
    scaled = np.empty((rows, dims), kind)
    inverse = np.empty((rows, dims), kind)
    log_prob = np.empty(rows, kind)
    deviations = np.empty(rows, kind)
    loops.gaussian(outputs.value, action.reshape(rows, dims), scaled, inverse, log_prob, deviations)

    def of_action(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty((rows, width), kind)
        loops.of_action(slopes, scaled, inverse, found)
        return (found,)

    def of_entropy(slopes: Array, into: Into) -> tuple[Array]:
        found = np.zeros((rows, width), kind)
        found[:, dims:] = slopes[:, None]
        return (found,)

    log_prob -= 0.5 * dims * math.log(2 * math.pi)
    entropy = deviations + 0.5 * dims * math.log(2 * math.pi * math.e)
    return Node(log_prob, (outputs,), of_action), Node(entropy, (outputs,), of_entropy)


def squashed(outputs: Node | Array, noise: Array, bounds: tuple[float, float]) -> tuple[Any, Any]:
    """Draw actions y = tanh(x), x = mean + deviation * noise, of outputs [B, 2 d], and their log-probabilities [B].

    Arrays where `outputs` is one. With respect to x, y has the slope 1 - y² and log p the slope 2 y; log p has a slope
    of -1 in the log standard deviation besides. Beyond their bounds log standard deviations have no slope.
    """
    known = outputs.value if isinstance(outputs, Node) else outputs
    if (loops := loops_for(known)) is not None:
        return _squashed(loops, outputs, known, noise, bounds)
    dims = known.shape[1] // 2
    given = known[:, dims:]
    log_std = np.minimum(np.maximum(given, bounds[0]), bounds[1])
    apart = np.exp(log_std) * noise
    before = known[:, :dims] + apart
    action = np.tanh(before)
    # log(1 - tanh(x)²) = 2 (log 2 - |x| - log(1 + exp(-2 |x|)))
    size = np.abs(before)
    slope = 2 * (math.log(2) - size - np.log1p(np.exp(-2 * size)))
    terms = -0.5 * np.square(noise) - log_std - slope
    log_prob = terms.dot(ones(dims, terms.dtype)) - 0.5 * dims * math.log(2 * math.pi)
    if not isinstance(outputs, Node):
        return action, log_prob
    apart *= log_std == given

    def of_action(slopes: Array, into: Into) -> tuple[Array]:
        by_mean = slopes * (1 - np.square(action))
        return (np.concatenate([by_mean, by_mean * apart], 1),)

    def of_log_prob(slopes: Array, into: Into) -> tuple[Array]:
        by_mean = 2 * action
        by_log_std = by_mean * apart - (log_std == given)
        return (np.concatenate([by_mean, by_log_std], 1) * slopes[:, None],)

    return Node(action, (outputs,), of_action), Node(log_prob, (outputs,), of_log_prob)


def _squashed(
    loops: ModuleType,
    outputs: Node | Array,
    known: Array,
    noise: Array,
    bounds: tuple[float, float],
) -> tuple[Any, Any]:
    (rows, dims), (low, high) = noise.shape, bounds
    action, apart, log_prob = (
        np.empty(shape, known.dtype) for shape in ((rows, dims), (rows, dims), rows)
    )
    loops.squashed(known, noise, low=low, high=high, action=action, apart=apart, log_prob=log_prob)
    log_prob -= 0.5 * dims * math.log(2 * math.pi)
    if not isinstance(outputs, Node):
        return action, log_prob

    def of_action(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty(known.shape, known.dtype)
        loops.of_squashed(np.ascontiguousarray(slopes), action, apart, found)
        return (found,)

    def of_log_prob(slopes: Array, into: Into) -> tuple[Array]:
        found = np.empty(known.shape, known.dtype)
        loops.of_squashed_log_prob(
            slopes, action, apart, outputs=known, low=low, high=high, found=found
        )
        return (found,)

    return Node(action, (outputs,), of_action), Node(log_prob, (outputs,), of_log_prob)
