"""Loops of action heads and losses.

B: rows, A: actions, d: dimensions of an action. `gradient` is the gradient at a result; loops write the gradient at the
inputs to `below`.
"""

from __future__ import annotations

import math

import numpy as np

from rlplug_core.fast.loops.layers import HALF, ONE, ZERO, _tanh, loop
from rlplug_core.types import Array

TWO = np.float32(2)
LOG_2 = np.float32(math.log(2))


@loop
def categorical(
    logits: Array,
    action: Array,
    log_probs: Array,
    probs: Array,
    chosen: Array,
    entropy: Array,
) -> None:
    """Write log p and p [B, A] of logits [B, A], log p of the actions a [B], and the entropies [B]."""
    for b in range(logits.shape[0]):
        highest = logits[b, 0]
        total = ZERO
        row_entropy = ZERO
        for a in range(1, logits.shape[1]):  # the method `max` would take a third of the whole time
            highest = highest if highest > logits[b, a] else logits[b, a]
        for a in range(logits.shape[1]):
            log_probs[b, a] = logits[b, a] - highest
            probs[b, a] = math.exp(log_probs[b, a])
            total += probs[b, a]
        log_total = np.float32(math.log(total))
        inverse_total = ONE / total
        for a in range(logits.shape[1]):
            log_probs[b, a] -= log_total
            probs[b, a] *= inverse_total
            row_entropy -= probs[b, a] * log_probs[b, a]
        chosen[b], entropy[b] = log_probs[b, action[b]], row_entropy


@loop
def log_softmax(logits: Array, log_probs: Array, probs: Array) -> None:
    """Write log p and p [R, n] of logits [R, n]. `categorical` adds the entropies in the same pass, to save time."""
    for r in range(logits.shape[0]):
        highest = logits[r, 0]
        total = ZERO
        for i in range(1, logits.shape[1]):
            highest = highest if highest > logits[r, i] else logits[r, i]
        for i in range(logits.shape[1]):
            log_probs[r, i] = logits[r, i] - highest
            probs[r, i] = math.exp(log_probs[r, i])
            total += probs[r, i]
        log_total = np.float32(math.log(total))
        inverse_total = ONE / total
        for i in range(logits.shape[1]):
            log_probs[r, i] -= log_total
            probs[r, i] *= inverse_total


@loop
def categorical_backward(
    gradient: Array,
    probs: Array,
    action: Array,
    below: Array,
) -> None:
    """Write gradients [B, A] at the logits from gradients [B] at log p(a): the derivative is 1{a} - p."""
    for b in range(probs.shape[0]):
        for a in range(probs.shape[1]):
            below[b, a] = -gradient[b] * probs[b, a]
        below[b, action[b]] += gradient[b]


@loop
def entropy_backward(
    gradient: Array,
    probs: Array,
    log_probs: Array,
    entropy: Array,
    below: Array,
) -> None:
    """Write gradients [B, A] at the logits from gradients [B] at the entropies H: the derivative is -p (log p + H)."""
    for b in range(probs.shape[0]):
        for a in range(probs.shape[1]):
            below[b, a] = -gradient[b] * probs[b, a] * (log_probs[b, a] + entropy[b])


@loop
def gaussian(
    outputs: Array,
    action: Array,
    scaled: Array,
    inverse: Array,
    log_prob: Array,
    deviations: Array,
) -> None:
    """Compute log p of actions a [B, d] for means and log standard deviations [B, 2 d].

    `scaled` [B, d] gets z = (a - mean) / deviation, `inverse` [B, d] gets 1 / deviation. `log_prob` [B] gets the sum of
    -z² / 2 - log deviation, which is log p without its constant, and `deviations` [B] the sum of log deviation.
    """
    dims = scaled.shape[1]
    for b in range(scaled.shape[0]):
        square = ZERO
        log_deviations = ZERO
        for i in range(dims):
            inverse[b, i] = math.exp(-outputs[b, dims + i])
            z = (action[b, i] - outputs[b, i]) * inverse[b, i]
            scaled[b, i] = z
            square += z * z
            log_deviations += outputs[b, dims + i]
        log_prob[b], deviations[b] = np.float32(-0.5) * square - log_deviations, log_deviations


@loop
def gaussian_backward(
    gradient: Array,
    scaled: Array,
    inverse: Array,
    below: Array,
) -> None:
    """Write gradients [B, 2 d] from gradients [B] at log p: the derivatives are z / deviation and z² - 1."""
    dims = scaled.shape[1]
    for b in range(scaled.shape[0]):
        for i in range(dims):
            below[b, i] = gradient[b] * scaled[b, i] * inverse[b, i]
            below[b, dims + i] = gradient[b] * (scaled[b, i] * scaled[b, i] - ONE)


@loop
def squash(
    outputs: Array,
    noise: Array,
    low: float,
    high: float,
    action: Array,
    shift: Array,
    log_prob: Array,
) -> None:
    """Write actions y = tanh(x) [B, d] of x = mean + deviation * noise.

    `outputs` [B, 2 d] are means and log standard deviations; the latter are clipped to [low, high]. `shift` [B, d]
    gets the derivative of x by the log standard deviation: deviation * noise, or 0 if it is clipped. `log_prob` [B]
    gets the sum of -noise² / 2 - log deviation - log(1 - y²), which is log p without its constant.
    """
    dims = noise.shape[1]
    least = np.float32(low)
    most = np.float32(high)
    for b in range(noise.shape[0]):
        total = ZERO
        for i in range(dims):
            raw = outputs[b, dims + i]
            log_std = least if raw < least else raw
            log_std = most if log_std > most else log_std
            raw_shift = math.exp(log_std) * noise[b, i]
            x = outputs[b, i] + raw_shift
            size = abs(x)
            log_derivative = TWO * (LOG_2 - size - math.log1p(math.exp(-TWO * size)))  # log(1 - y²)
            action[b, i], shift[b, i] = _tanh(x), raw_shift if log_std == raw else ZERO
            total -= HALF * noise[b, i] * noise[b, i] + log_std + log_derivative
        log_prob[b] = total


@loop
def squash_backward(
    gradient: Array,
    action: Array,
    shift: Array,
    below: Array,
) -> None:
    """Write gradients [B, 2 d] at means and log standard deviations from gradients [B, d] at y."""
    dims = action.shape[1]
    for b in range(action.shape[0]):
        for i in range(dims):
            by_mean = gradient[b, i] * (ONE - action[b, i] * action[b, i])
            below[b, i], below[b, dims + i] = by_mean, by_mean * shift[b, i]


@loop
def squash_log_prob_backward(
    gradient: Array,
    action: Array,
    shift: Array,
    outputs: Array,
    low: float,
    high: float,
    below: Array,
) -> None:
    """Write gradients [B, 2 d] at means and log standard deviations from gradients [B] at log p of y."""
    dims = action.shape[1]
    least = np.float32(low)
    most = np.float32(high)
    for b in range(action.shape[0]):
        for i in range(dims):
            by_mean = TWO * action[b, i]
            raw = outputs[b, dims + i]
            inside = ONE if least <= raw and raw <= most else ZERO
            below[b, i], below[b, dims + i] = (
                by_mean * gradient[b],
                (by_mean * shift[b, i] - inside) * gradient[b],
            )


@loop
def clipped_product(
    ratio: Array,
    factor: Array,
    low: float,
    high: float,
    surrogate: Array,
    derivative: Array,
) -> None:
    """Write min(ratio * factor, clip(ratio, low, high) * factor) [B] and its derivatives by the ratio."""
    least = np.float32(low)
    most = np.float32(high)
    for b in range(ratio.size):
        clipped = least if ratio[b] < least else ratio[b]
        clipped = (most if clipped > most else clipped) * factor[b]
        plain = ratio[b] * factor[b]
        derivative[b] = factor[b] if plain <= clipped else ZERO
        surrogate[b] = clipped if plain > clipped else plain


@loop
def huber(error: Array, loss: Array, derivative: Array) -> None:
    """Write Huber losses [B] of errors [B], error² / 2 in [-1, 1] and |error| - 1/2 outside, and their derivatives."""
    for b in range(error.size):
        clipped = -ONE if error[b] < -ONE else error[b]
        clipped = ONE if clipped > ONE else clipped
        derivative[b], loss[b] = clipped, clipped * (error[b] - HALF * clipped)
