"""Loops of action heads and losses; B rows."""

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
    shares: Array,
    chosen: Array,
    entropy: Array,
) -> None:
    """Write log p and p [B, A] of logits [B, A], log p[a] of actions [B], and the entropies [B]."""
    for b in range(logits.shape[0]):
        highest = logits[b, 0]
        total = ZERO
        spread = ZERO
        for a in range(1, logits.shape[1]):  # a row's `max` takes a third of the whole time
            highest = highest if highest > logits[b, a] else logits[b, a]
        for a in range(logits.shape[1]):
            log_probs[b, a] = logits[b, a] - highest
            shares[b, a] = math.exp(log_probs[b, a])
            total += shares[b, a]
        size = np.float32(math.log(total))
        part = ONE / total
        for a in range(logits.shape[1]):
            log_probs[b, a] -= size
            shares[b, a] *= part
            spread -= shares[b, a] * log_probs[b, a]
        chosen[b], entropy[b] = log_probs[b, action[b]], spread


@loop
def log_softmax(logits: Array, log_probs: Array, shares: Array) -> None:
    """Write log p and p [R, n] of logits [R, n]; `categorical` does it with entropies in one pass, half the time."""
    for r in range(logits.shape[0]):
        highest = logits[r, 0]
        total = ZERO
        for i in range(1, logits.shape[1]):
            highest = highest if highest > logits[r, i] else logits[r, i]
        for i in range(logits.shape[1]):
            log_probs[r, i] = logits[r, i] - highest
            shares[r, i] = math.exp(log_probs[r, i])
            total += shares[r, i]
        size = np.float32(math.log(total))
        part = ONE / total
        for i in range(logits.shape[1]):
            log_probs[r, i] -= size
            shares[r, i] *= part


@loop
def of_chosen(
    gradient: Array,
    shares: Array,
    action: Array,
    below: Array,
) -> None:
    """Write gradients [B, A] at the logits from those at log p[a], [B]: 1{a} - p times each."""
    for b in range(shares.shape[0]):
        for a in range(shares.shape[1]):
            below[b, a] = -gradient[b] * shares[b, a]
        below[b, action[b]] += gradient[b]


@loop
def of_entropy(
    gradient: Array,
    shares: Array,
    log_probs: Array,
    entropy: Array,
    below: Array,
) -> None:
    """Write gradients [B, A] at the logits from those at the entropies, [B]: -p (log p + H) times each."""
    for b in range(shares.shape[0]):
        for a in range(shares.shape[1]):
            below[b, a] = -gradient[b] * shares[b, a] * (log_probs[b, a] + entropy[b])


@loop
def gaussian(
    outputs: Array,
    action: Array,
    scaled: Array,
    inverse: Array,
    log_prob: Array,
    deviations: Array,
) -> None:
    """Write z = (a - mean) / deviation and 1 / deviation [B, d] of means and log standard deviations [B, 2 d].

    `log_prob` [B] gets -z² / 2 - log deviation in sum, without its constant, `deviations` [B] the sum of the logs.
    """
    dims = scaled.shape[1]
    for b in range(scaled.shape[0]):
        square = ZERO
        spread = ZERO
        for i in range(dims):
            inverse[b, i] = math.exp(-outputs[b, dims + i])
            z = (action[b, i] - outputs[b, i]) * inverse[b, i]
            scaled[b, i] = z
            square += z * z
            spread += outputs[b, dims + i]
        log_prob[b], deviations[b] = np.float32(-0.5) * square - spread, spread


@loop
def of_action(
    gradient: Array,
    scaled: Array,
    inverse: Array,
    below: Array,
) -> None:
    """Write gradients at means and log standard deviations: those at log p, [B], times z / deviation and z² - 1."""
    dims = scaled.shape[1]
    for b in range(scaled.shape[0]):
        for i in range(dims):
            below[b, i] = gradient[b] * scaled[b, i] * inverse[b, i]
            below[b, dims + i] = gradient[b] * (scaled[b, i] * scaled[b, i] - ONE)


@loop
def squashed(
    outputs: Array,
    noise: Array,
    low: float,
    high: float,
    action: Array,
    apart: Array,
    log_prob: Array,
) -> None:
    """Write y = tanh(x), x = mean + deviation * noise [B, d], of means and log standard deviations [B, 2 d] in bounds.

    `apart` [B, d] gets deviation * noise inside the bounds and 0 outside, `log_prob` [B] the sums of
    -noise² / 2 - log deviation - log(1 - y²), without their constant.
    """
    dims = noise.shape[1]
    least = np.float32(low)
    most = np.float32(high)
    for b in range(noise.shape[0]):
        total = ZERO
        for i in range(dims):
            given = outputs[b, dims + i]
            log_std = least if given < least else given
            log_std = most if log_std > most else log_std
            moved = math.exp(log_std) * noise[b, i]
            x = outputs[b, i] + moved
            size = abs(x)
            derivative = TWO * (LOG_2 - size - math.log1p(math.exp(-TWO * size)))
            action[b, i], apart[b, i] = _tanh(x), moved if log_std == given else ZERO
            total -= HALF * noise[b, i] * noise[b, i] + log_std + derivative
        log_prob[b] = total


@loop
def of_squashed(
    gradient: Array,
    action: Array,
    apart: Array,
    below: Array,
) -> None:
    """Write gradients [B, 2 d] at means and log standard deviations from those at y, [B, d]."""
    dims = action.shape[1]
    for b in range(action.shape[0]):
        for i in range(dims):
            by_mean = gradient[b, i] * (ONE - action[b, i] * action[b, i])
            below[b, i], below[b, dims + i] = by_mean, by_mean * apart[b, i]


@loop
def of_squashed_log_prob(
    gradient: Array,
    action: Array,
    apart: Array,
    outputs: Array,
    low: float,
    high: float,
    below: Array,
) -> None:
    """Write gradients [B, 2 d] at means and log standard deviations from those at log p of y, [B]."""
    dims = action.shape[1]
    least = np.float32(low)
    most = np.float32(high)
    for b in range(action.shape[0]):
        for i in range(dims):
            by_mean = TWO * action[b, i]
            given = outputs[b, dims + i]
            inside = ONE if least <= given and given <= most else ZERO
            below[b, i], below[b, dims + i] = (
                by_mean * gradient[b],
                (by_mean * apart[b, i] - inside) * gradient[b],
            )


@loop
def clipped_product(
    ratio: Array,
    factor: Array,
    low: float,
    high: float,
    smaller: Array,
    derivative: Array,
) -> None:
    """Write the smaller of ratio times factor, and of the ratio within bounds times it, [B], and its derivatives."""
    least = np.float32(low)
    most = np.float32(high)
    for b in range(ratio.size):
        cut = least if ratio[b] < least else ratio[b]
        cut = (most if cut > most else cut) * factor[b]
        full = ratio[b] * factor[b]
        derivative[b] = factor[b] if full <= cut else ZERO
        smaller[b] = cut if full > cut else full


@loop
def huber(error: Array, loss: Array, derivative: Array) -> None:
    """Write half of the squares of errors [B] within 1, the size minus a half outside, and the derivatives [B]."""
    for b in range(error.size):
        cut = -ONE if error[b] < -ONE else error[b]
        cut = ONE if cut > ONE else cut
        derivative[b], loss[b] = cut, cut * (error[b] - HALF * cut)
