"""Estimators of returns and advantages over rollouts of NumPy arrays or tensors, [T, N]."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlplug_core.accelerator import kernel, overridable
from rlplug_core.arrays import cast, copy_of, namespace
from rlplug_core.batches import Rollout
from rlplug_core.types import Array

#: Up to this number of environments Python lists are faster than NumPy calls.
FEW = 8


@kernel
def gae(
    rollout: Rollout,
    value: Array,
    next_value: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Compute GAE advantages and value targets (Schulman et al., 2016, arXiv:1506.02438, eq. 16).

    The targets are λ-returns: n-step returns with `lam` = 1, one-step ones with 0. `terminated` zeroes the bootstrap;
    `terminated` or `truncated` ends the recursion. Rows of weight 0 are skipped: their advantage is 0 and does not
    affect others.

    Args:
        rollout: T steps of N environments.
        value: [T, N] V(obs).
        next_value: [T, N] V of the true successor of each step.
        gamma: discount per step.
        lam: lambda, in [0, 1].

    Returns:
        advantage and target = advantage + value, both [T, N] float32.
    """
    ended = rollout.terminated | rollout.truncated
    if not rollout.whole:
        valid = rollout.weight > 0
        next_value = next_valid(value, next_value, ended, valid)
    delta = rollout.reward + gamma * next_value * ~rollout.terminated - value
    decay = (gamma * lam) * ~ended
    if not rollout.whole:
        xp = namespace(value)
        delta = xp.where(valid, delta, 0)
        decay = xp.where(valid, decay, 1)
    advantage = _sum_discounted(delta, decay, advantage=0 * rollout.reward)
    if not rollout.whole:
        advantage *= valid
    if value.dtype != advantage.dtype:
        value = cast(value, np.float32)
    return advantage, advantage + value


def _sum_discounted(delta: Array, decay: Array, advantage: Array) -> Array:
    """Write a[t] = delta[t] + decay[t] a[t + 1], [T, N], into `advantage`.

    For few environments and long rollouts each column is computed as a list, which has less overhead per number; the
    result is equal.
    """
    few = delta.shape[1] <= min(FEW, len(delta))
    if few and not isinstance(delta, Tensor):
        for column in range(delta.shape[1]):
            running = 0.0
            sums = []
            for error, factor in zip(
                delta[::-1, column].tolist(), decay[::-1, column].tolist(), strict=True
            ):
                running = error + factor * running
                sums.append(running)
            advantage[::-1, column] = sums
        return advantage
    total: Array | float = 0.0
    for t in range(len(delta) - 1, -1, -1):
        total = delta[t] + decay[t] * total
        advantage[t] = total
    return advantage


def next_valid(
    value: Array,
    next_value: Array,
    ended: Array,
    valid: Array,
) -> Array:
    """Return successor values that skip rows of weight 0: V of the next valid row of the same episode."""
    xp = namespace(value)
    next_value = copy_of(next_value)
    upcoming = next_value[-1]
    for t in range(len(value) - 1, -1, -1):
        if t < len(value) - 1:
            next_value[t] = xp.where(ended[t] | valid[t + 1], next_value[t], upcoming)
        upcoming = xp.where(valid[t], value[t], upcoming)
    return next_value


@kernel
def explained_variance(
    rollout: Rollout,
    advantage: Array,
    target: Array,
) -> float | Tensor:
    """Return the share of the variance of value targets that the critic explained: 1 - Var(advantage) / Var(target).

    1 means a perfect critic, 0 a critic that is as good as a constant, and below 0 it is worse. Rows of weight 0 do not
    count.

    Args:
        rollout: T steps of N environments.
        advantage: [T, N] target - V(obs).
        target: [T, N] value targets; if they are all equal, the result is 0.

    Returns:
        A number, or a tensor [] on the device of the rollout.
    """
    if not rollout.whole:
        valid = rollout.weight > 0
        advantage = advantage[valid]
        target = target[valid]
    error = advantage.ravel() - advantage.mean()  # `np.var` has twice the overhead
    deviation = target.ravel() - target.mean()
    if isinstance(deviation, Tensor):
        return torch.where(deviation.any(), 1 - error.dot(error) / deviation.dot(deviation), 0)
    total = float(deviation @ deviation)
    return 1 - float(error @ error) / total if total else 0.0


@overridable
def standardize(
    value: Tensor,
    weight: Tensor,
    epsilon: float = 1e-8,
) -> Tensor:
    """Shift and scale values to mean 0 and deviation 1 over the rows that count.

    Args:
        value: [B].
        weight: [B] above 0 for the rows that count.
        epsilon: added to the deviation, so that equal values become 0.

    Returns:
        Values [B], of all rows.
    """
    used = (weight > 0).to(value.dtype)
    count = used.sum().clamp(min=1)
    mean = (used * value).sum() / count
    variance = (used * (value - mean).square()).sum() / (count - 1).clamp(min=1)
    return (value - mean) / (variance.sqrt() + epsilon)
