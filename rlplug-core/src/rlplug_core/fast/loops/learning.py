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
    """Take a step of Adam with weight decay `decay`, which is added to the gradient.

    `rate` is the learning rate divided by the bias correction of the mean. `root` is the factor that corrects the root
    of the square.
    """
    mean_share = np.float32(1 - betas[0])
    square_decay = np.float32(betas[1])
    square_share = np.float32(1 - betas[1])  # 1 minus a float32 would be off by 5e-5
    step_size = np.float32(rate)
    epsilon = np.float32(eps)
    root_factor = np.float32(root)
    weight_decay = np.float32(decay)
    for i in range(parameters.size):
        g = gradient[i] + weight_decay * parameters[i]
        m = mean[i] + mean_share * (g - mean[i])
        v = square_decay * square[i] + square_share * g * g
        mean[i], square[i] = m, v
        parameters[i] -= step_size * m / (np.sqrt(v) * root_factor + epsilon)


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
    decay = np.float32(alpha)
    share = np.float32(1 - alpha)
    epsilon = np.float32(eps)
    step_size = np.float32(rate)
    for i in range(parameters.size):
        g = gradient[i]
        v = decay * square[i] + share * g * g
        square[i] = v
        # For an infinite root the compiled division gives NaN; torch's gives 0, and NaN if g is infinite.
        parameters[i] -= ZERO * g if v == INFINITY else step_size * g / np.sqrt(v + epsilon)


@loop
def polyak(weights: Array, online_weights: Array, tau: float) -> None:
    """Move weights by the share `tau` of the way towards those of the online network."""
    share = np.float32(tau)
    for i in range(weights.size):
        weights[i] += share * (online_weights[i] - weights[i])


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
    """Write advantages and value targets [T, N] of a rollout in which all rows count."""
    discount = np.float32(gamma)
    decay = np.float32(gamma * lam)
    for n in range(reward.shape[1]):
        running = ZERO
        for t in range(reward.shape[0] - 1, -1, -1):
            # A product, as in the plain code, not a branch: 0 times NaN is NaN, which the optimizer finds.
            bootstrap = discount * next_value[t, n] * (ZERO if terminated[t, n] else ONE)
            running *= ZERO if terminated[t, n] or truncated[t, n] else decay
            running += reward[t, n] + bootstrap - value[t, n]
            advantage[t, n], target[t, n] = running, running + value[t, n]


@loop
def standardize(
    value: Array,
    weight: Array,
    epsilon: float,
    outputs: Array,
) -> None:
    """Write values [B] shifted and scaled so that the rows with a weight above 0 have mean 0 and deviation 1."""
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
    divisor = count - ONE
    scale = np.sqrt(square / (divisor if divisor > ONE else ONE)) + np.float32(epsilon)
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

    `derivative` [B, N] gets its gradient in the quantiles. The loss is over all pairs of a quantile and a target.
    """
    high = np.float32(kappa)
    rows = quantiles.shape[0]
    low = -high
    factor = ONE / (high * np.float32(targets.shape[1]))
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
                clipped = low if error < low else error
                clipped = high if clipped > high else clipped
                weighted = clipped * (below if error < ZERO else above)
                terms += weighted * (error - HALF * clipped)
                derivatives -= weighted
            derivative[b, i] = derivatives * factor
            total += terms
        loss[b] = total * factor


@loop
def projection(
    probability: Array,
    reward: Array,
    discount: Array,
    support: Array,
    outputs: Array,
) -> None:
    """Project the distributions [B, n] of reward + discount * Z on the atoms `support` [n] of Z.

    The result is added to `outputs` [B, n], which is 0 before.
    """
    last = support.size - 1
    highest = np.float32(last)
    scale = highest / (support[last] - support[0])
    for b in range(probability.shape[0]):
        for j in range(last + 1):
            position = (reward[b] + discount[b] * support[j] - support[0]) * scale
            if np.isnan(position):  # NaN stays NaN, and is not an index
                outputs[b] = position
                break
            position = ZERO if position < ZERO else position
            position = highest if position > highest else position
            below = min(int(position), last - 1)
            share = position - np.float32(below)
            mass = probability[b, j] if discount[b] != ZERO else ONE
            outputs[b, below] += mass * (ONE - share)
            outputs[b, below + 1] += mass * share
            if discount[b] == ZERO:  # all atoms move to one position
                break


@loop
def explained_variance(advantage: Array, target: Array) -> float:
    """Return 1 - Var(advantage) / Var(target), or 0 if all targets are equal."""
    advantage_mean = 0.0
    target_mean = 0.0
    for i in range(target.size):
        advantage_mean += advantage[i]
        target_mean += target[i]
    advantage_mean /= target.size
    target_mean /= target.size
    advantage_squares = 0.0
    target_squares = 0.0
    for i in range(target.size):
        advantage_squares += (advantage[i] - advantage_mean) ** 2
        target_squares += (target[i] - target_mean) ** 2
    return 1 - advantage_squares / target_squares if target_squares else 0.0
