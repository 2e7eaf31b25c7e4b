"""Loops of update rules, estimators and losses on distributions."""

from __future__ import annotations

import numpy as np

from rlplug_core.fast.loops.layers import HALF, ONE, ZERO, loop
from rlplug_core.types import Array

INFINITY = np.float32(np.inf)


@loop
def adam(
    parameters: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    betas: tuple[float, float],
    rate: float,
    root: float,
    eps: float,
    decay: float,
) -> None:
    """Take a step of Adam; `rate` is divided by the correction of the mean, `root` corrects the root of the square."""
    one = np.float32(1 - betas[0])
    two = np.float32(betas[1])
    rest = np.float32(1 - betas[1])  # not 1 minus a float32, which is off by 5e-5
    size = np.float32(rate)
    small = np.float32(eps)
    by = np.float32(root)
    shrink = np.float32(decay)
    for i in range(parameters.size):
        g = gradient[i] + shrink * parameters[i]
        m = mean[i] + one * (g - mean[i])
        v = two * square[i] + rest * g * g
        mean[i], square[i] = m, v
        parameters[i] -= size * m / (np.sqrt(v) * by + small)


@loop
def rmsprop(
    parameters: Array,
    gradient: Array,
    square: Array,
    alpha: float,
    eps: float,
    rate: float,
) -> None:
    """Take a step of RMSProp, with epsilon inside the root."""
    kept = np.float32(alpha)
    rest = np.float32(1 - alpha)
    small = np.float32(eps)
    size = np.float32(rate)
    for i in range(parameters.size):
        g = gradient[i]
        v = kept * square[i] + rest * g * g
        square[i] = v
        # The compiled division by a root is NaN for an infinite root; autograd's is 0, and NaN if g is infinite.
        parameters[i] -= ZERO * g if v == INFINITY else size * g / np.sqrt(v + small)


@loop
def polyak(weights: Array, online_weights: Array, share: float) -> None:
    """Move weights by a share of the way to those of the online network."""
    part = np.float32(share)
    for i in range(weights.size):
        weights[i] += part * (online_weights[i] - weights[i])


@loop
def gae(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    next_value: Array,
    gamma: float,
    lam: float,
    advantage: Array,
    target: Array,
) -> None:
    """Write advantages and value targets [T, N] of rollouts if every row counts."""
    share = np.float32(gamma)
    decay = np.float32(gamma * lam)
    for n in range(reward.shape[1]):
        running = ZERO
        for t in range(reward.shape[0] - 1, -1, -1):
            # A product and no choice, as in the plain code: 0 times NaN is NaN, which the optimizer finds.
            ahead = share * next_value[t, n] * (ZERO if terminated[t, n] else ONE)
            running *= ZERO if terminated[t, n] or truncated[t, n] else decay
            running += reward[t, n] + ahead - value[t, n]
            advantage[t, n], target[t, n] = running, running + value[t, n]


@loop
def standardized(
    value: Array,
    weight: Array,
    epsilon: float,
    outputs: Array,
) -> None:
    """Write values [B] shifted and scaled to mean 0 and deviation 1 over the rows with a weight above 0."""
    count = ZERO
    total = ZERO
    square = ZERO
    for b in range(value.size):
        used = ONE if weight[b] > ZERO else ZERO
        count += used
        total += used * value[b]
    mean = total / (count if count > ONE else ONE)
    for b in range(value.size):
        used = ONE if weight[b] > ZERO else ZERO
        square += used * (value[b] - mean) * (value[b] - mean)
    others = count - ONE
    scale = np.sqrt(square / (others if others > ONE else ONE)) + np.float32(epsilon)
    for b in range(value.size):
        outputs[b] = (value[b] - mean) / scale


@loop
def quantile_huber(
    quantiles: Array,
    shares: Array,
    targets: Array,
    kappa: float,
    loss: Array,
    derivative: Array,
) -> None:
    """Write the quantile regression loss [B] of quantiles [B, N] at `shares` [B, N] for targets [B, M].

    `derivative` [B, N] gets its gradient in the quantiles. Every pair of a quantile and a target is computed.
    """
    most = np.float32(kappa)
    rows = quantiles.shape[0]
    least = -most
    part = ONE / (most * np.float32(targets.shape[1]))
    for b in range(rows):
        total = ZERO
        row = targets[b]
        for i in range(quantiles.shape[1]):
            quantile = quantiles[b, i]
            above = shares[b, i]
            below = ONE - shares[b, i]
            terms = ZERO
            derivatives = ZERO
            for j in range(targets.shape[1]):
                error = row[j] - quantile
                cut = least if error < least else error
                cut = most if cut > most else cut
                weighted = cut * (below if error < ZERO else above)
                terms += weighted * (error - HALF * cut)
                derivatives -= weighted
            derivative[b, i] = derivatives * part
            total += terms
        loss[b] = total * part


@loop
def projection(
    probability: Array,
    reward: Array,
    discount: Array,
    support: Array,
    outputs: Array,
) -> None:
    """Add to `outputs` [B, n], all 0, the distributions [B, n] of reward + discount * Z on Z's atoms `support` [n]."""
    last = support.size - 1
    scale = np.float32(last) / (support[last] - support[0])
    for b in range(probability.shape[0]):
        for j in range(last + 1):
            place = (reward[b] + discount[b] * support[j] - support[0]) * scale
            if np.isnan(place):  # NaN stays NaN, and is not an index
                outputs[b] = place
                break
            place = (
                ZERO if place < ZERO else np.float32(last) if place > np.float32(last) else place
            )
            below = min(int(place), last - 1)
            share = place - np.float32(below)
            mass = probability[b, j] if discount[b] != ZERO else ONE
            outputs[b, below] += mass * (ONE - share)
            outputs[b, below + 1] += mass * share
            if discount[b] == ZERO:  # all atoms move to one place
                break


@loop
def explained_variance(advantage: Array, target: Array) -> float:
    """Return 1 - Var(advantage) / Var(target) of vectors, or 0 if the targets are all equal."""
    mean = 0.0
    center = 0.0
    for i in range(target.size):
        mean += advantage[i]
        center += target[i]
    mean /= target.size
    center /= target.size
    error = 0.0
    spread = 0.0
    for i in range(target.size):
        error += (advantage[i] - mean) ** 2
        spread += (target[i] - center) ** 2
    return 1 - error / spread if spread else 0.0
