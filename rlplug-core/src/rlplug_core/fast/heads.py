"""Heads on arrays: log-probabilities and entropies, with gradients in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np

from rlplug_core.fast.array import FUNCTIONS, FastTensor, Operand, array_of
from rlplug_core.fast.constants import ones, row_numbers
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.numba_loops import head_loops
from rlplug_core.nets.heads.categorical import Categorical
from rlplug_core.nets.heads.gaussian import Gaussian
from rlplug_core.nets.heads.tanh import SquashedGaussian
from rlplug_core.types import Array


def categorical(outputs: FastTensor, action: Array) -> tuple[FastTensor, FastTensor]:
    """Compute log p[a] and the entropy H [B] of logits [B, A] and actions [B].

    The gradient of log p[a] is 1{a} - p, that of H is -p (log p + H).
    """
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

    def of_chosen(gradient: Array, into: Gradients) -> tuple[Array]:
        found = shares * -gradient[:, None]
        found[rows, action] += gradient
        return (found,)

    def of_entropy(gradient: Array, into: Gradients) -> tuple[Array]:
        found = log_probs + entropy[:, None]
        found *= shares
        found *= -gradient[:, None]
        return (found,)

    chosen = outputs.result(log_probs[rows, action], of_chosen)
    return chosen, outputs.result(entropy, of_entropy)


def gaussian(outputs: FastTensor, action: Array) -> tuple[FastTensor, FastTensor]:
    """Compute, of means and log standard deviations [B, 2 d] and actions [B, ...], with z = (a - mean) / deviation:

    log p, with gradient z / deviation and z² - 1, and H, with gradient 0 and 1.
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

    def of_action(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty_like(outputs.value)
        np.multiply(scaled, inverse, out=found[:, :dims])
        np.subtract(square, 1, out=found[:, dims:])
        found *= gradient[:, None]
        return (found,)

    def of_entropy(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.zeros_like(outputs.value)
        found[:, dims:] = gradient[:, None]
        return (found,)

    return outputs.result(log_prob, of_action), outputs.result(entropy, of_entropy)


def loops_for(
    outputs: Array, which: Callable[[], ModuleType | None] = head_loops
) -> ModuleType | None:
    """Return numba's loops if they take these outputs."""
    return which() if outputs.dtype == np.float32 and outputs.flags.c_contiguous else None


def _categorical(
    loops: ModuleType, outputs: FastTensor, action: Array
) -> tuple[FastTensor, FastTensor]:
    shape = outputs.shape
    kind = outputs.value.dtype
    log_probs = np.empty(shape, kind)
    shares = np.empty(shape, kind)
    chosen = np.empty(shape[0], kind)
    entropy = np.empty(shape[0], kind)
    loops.categorical(outputs.value, action, log_probs, shares, chosen, entropy)

    def of_chosen(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty(shape, kind)
        loops.of_chosen(gradient, shares, action, found)
        return (found,)

    def of_entropy(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty(shape, kind)
        loops.of_entropy(gradient, shares, log_probs, entropy, found)
        return (found,)

    return outputs.result(chosen, of_chosen), outputs.result(entropy, of_entropy)


def _gaussian(
    loops: ModuleType, outputs: FastTensor, action: Array
) -> tuple[FastTensor, FastTensor]:
    (rows, width), kind = outputs.shape, outputs.value.dtype
    dims = width // 2
    scaled = np.empty((rows, dims), kind)
    inverse = np.empty((rows, dims), kind)
    log_prob = np.empty(rows, kind)
    deviations = np.empty(rows, kind)
    loops.gaussian(outputs.value, action.reshape(rows, dims), scaled, inverse, log_prob, deviations)

    def of_action(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty((rows, width), kind)
        loops.of_action(gradient, scaled, inverse, found)
        return (found,)

    def of_entropy(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.zeros((rows, width), kind)
        found[:, dims:] = gradient[:, None]
        return (found,)

    log_prob -= 0.5 * dims * math.log(2 * math.pi)
    entropy = deviations + 0.5 * dims * math.log(2 * math.pi * math.e)
    return outputs.result(log_prob, of_action), outputs.result(entropy, of_entropy)


def squash_draw(
    outputs: FastTensor, noise: Array, bounds: tuple[float, float]
) -> tuple[FastTensor, FastTensor]:
    """Draw actions y = tanh(x), x = mean + deviation * noise, of outputs [B, 2 d], and their log-probabilities [B].

    The derivative of y by x is 1 - y², that of log p is 2 y, and -1 by the log standard deviation in addition. Beyond
    their bounds log standard deviations have a gradient of 0.
    """
    known = outputs.value
    if (loops := loops_for(known)) is not None:
        return _squash(loops, outputs, noise, bounds)
    dims = known.shape[1] // 2
    given = known[:, dims:]
    log_std = np.minimum(np.maximum(given, bounds[0]), bounds[1])
    apart = np.exp(log_std) * noise
    before = known[:, :dims] + apart
    action = np.tanh(before)
    # log(1 - tanh(x)²) = 2 (log 2 - |x| - log(1 + exp(-2 |x|)))
    size = np.abs(before)
    derivative = 2 * (math.log(2) - size - np.log1p(np.exp(-2 * size)))
    terms = -0.5 * np.square(noise) - log_std - derivative
    log_prob = terms.dot(ones(dims, terms.dtype)) - 0.5 * dims * math.log(2 * math.pi)
    apart *= log_std == given

    def of_action(gradient: Array, into: Gradients) -> tuple[Array]:
        by_mean = gradient * (1 - np.square(action))
        return (np.concatenate([by_mean, by_mean * apart], 1),)

    def of_log_prob(gradient: Array, into: Gradients) -> tuple[Array]:
        by_mean = 2 * action
        by_log_std = by_mean * apart - (log_std == given)
        return (np.concatenate([by_mean, by_log_std], 1) * gradient[:, None],)

    return outputs.result(action, of_action), outputs.result(log_prob, of_log_prob)


def _squash(
    loops: ModuleType,
    outputs: FastTensor,
    noise: Array,
    bounds: tuple[float, float],
) -> tuple[FastTensor, FastTensor]:
    known = outputs.value
    (rows, dims), (low, high) = noise.shape, bounds
    action, apart, log_prob = (
        np.empty(shape, known.dtype) for shape in ((rows, dims), (rows, dims), rows)
    )
    loops.squashed(known, noise, low=low, high=high, action=action, apart=apart, log_prob=log_prob)
    log_prob -= 0.5 * dims * math.log(2 * math.pi)

    def of_action(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty(known.shape, known.dtype)
        loops.of_squashed(np.ascontiguousarray(gradient), action, apart, found)
        return (found,)

    def of_log_prob(gradient: Array, into: Gradients) -> tuple[Array]:
        found = np.empty(known.shape, known.dtype)
        loops.of_squashed_log_prob(
            gradient, action, apart, outputs=known, low=low, high=high, found=found
        )
        return (found,)

    return outputs.result(action, of_action), outputs.result(log_prob, of_log_prob)


def _draw(head: SquashedGaussian, outputs: FastTensor, noise: Operand) -> tuple[FastTensor, ...]:
    return squash_draw(outputs, array_of(noise), head.LOG_STD)


def _categorical_head(
    head: Categorical, outputs: FastTensor, action: Operand
) -> tuple[FastTensor, FastTensor]:
    if type(head) is not Categorical:
        raise NoFastPath(UNKNOWN.format(type(head).__name__))
    return categorical(outputs, array_of(action))


def _gaussian_head(
    head: Gaussian, outputs: FastTensor, action: Operand
) -> tuple[FastTensor, FastTensor]:
    if type(head) is not Gaussian:
        raise NoFastPath(UNKNOWN.format(type(head).__name__))
    return gaussian(outputs, array_of(action))


#: The message for a subclass of a head, which may mean another distribution.
UNKNOWN = "{}.log_prob_and_entropy"

FUNCTIONS[Categorical.log_prob_and_entropy] = _categorical_head
FUNCTIONS[Gaussian.log_prob_and_entropy] = _gaussian_head
FUNCTIONS[SquashedGaussian.draw] = _draw
