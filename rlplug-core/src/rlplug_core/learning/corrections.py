"""Value targets for rollouts of an older policy, by truncated importance weights: V-trace and Retrace.

Rollouts are NumPy arrays or tensors, [T, N]; Retrace takes arrays only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlplug_core.arrays import Either, is_on_device, namespace, zeros
from rlplug_core.batches import Rollout
from rlplug_core.learning.estimators import next_valid
from rlplug_core.nets.memory_networks import RecurrentPolicy
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.types import Array, Obs


def log_probs(
    rollout: Rollout,
    policy: PolicyNetwork | RecurrentPolicy,
    outputs: Callable[[Obs, Array | None], Array],
) -> Array:
    """Compute log-probabilities of a rollout's actions under a policy, without a gradient.

    A policy with noisy layers uses the noise of the rollout. A memory starts with the recurrent state of the rollout.

    Args:
        rollout: T steps of N environments.
        policy: the policy.
        outputs: the policy's forward pass, made by `fast_noisy`; not used if the policy has a memory.

    Returns:
        Log-probabilities [T, N] in nats; 0 in rows of weight 0.
    """
    rows = rollout.size
    policy_outputs: Either
    if isinstance(policy, RecurrentPolicy):
        policy_outputs = policy.outputs(rollout)
    else:
        policy_outputs = outputs(rollout.flat_obs, policy.noise_of(rollout.extras))
    head = policy.head
    action: Either = rollout.action.reshape(rows, *rollout.action.shape[2:])
    log_prob = (
        head.log_prob(policy_outputs, action)
        if is_on_device(policy_outputs)
        else head.host_log_prob(policy_outputs, action)
    )
    xp = namespace(log_prob)
    return xp.where(rollout.weight > 0, log_prob.reshape(rollout.reward.shape), np.float32(0))


def importance_ratio(rollout: Rollout, log_prob: Array) -> Array:
    """Compute pi(a|s) / mu(a|s): the probabilities of actions now over those when they were chosen.

    Args:
        rollout: T steps of N environments, with the agent's `log_prob` in its extras.
        log_prob: [T, N] log-probabilities of its actions under pi, as `log_probs` computes them.

    Returns:
        Ratios [T, N].
    """
    return namespace(log_prob).exp(log_prob - rollout.extras["log_prob"])


def vtrace(
    rollout: Rollout,
    value: Array,
    next_value: Array,
    ratio: Array,
    gamma: float,
    lam: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    center: bool = False,
) -> tuple[Array, Array]:
    """Compute V-trace advantages and value targets (Espeholt et al., 2018, arXiv:1802.01561, eq. 1).

    `terminated` zeroes the bootstrap; `terminated` or `truncated` cuts the recursion at the value of the true
    successor. Rows of weight 0 are skipped; their advantage is 0.

    Args:
        rollout: T steps of N environments.
        value, next_value: [T, N] V of each observation and of each step's true successor.
        ratio: [T, N] pi(a|s) / mu(a|s), the action's probability now over its probability when it was chosen.
        gamma: discount per step.
        lam: factor of each trace coefficient (remark 2).
        clip_rho, clip_c: largest weights of the TD errors and of the traces (rho-bar and c-bar in the paper).
        center: subtract a baseline m, the mean of the advantages weighted by rho, so that they add up to 0. Losses that
            standardize advantages need it: subtracting the plain mean of rho A would bias an off-policy gradient.

    Returns:
        advantage: [T, N] rho_t (r_t + gamma v_(t + 1) - V(s_t) - m), with m = 0 unless `center` is on.
        target: [T, N] v_t.
    """
    xp = namespace(ratio)
    valid = rollout.weight > 0
    ended = (rollout.terminated | rollout.truncated) & valid
    next_value = next_valid(value, next_value, ended, valid)
    weight = xp.where(valid, ratio.clip(max=clip_rho), 0)
    trace = xp.where(valid, lam * ratio.clip(max=clip_c), 1)
    continues = ~ended
    discount = gamma * ~rollout.terminated
    delta = weight * xp.where(valid, rollout.reward + discount * next_value - value, 0)
    advantage = zeros(delta.shape, delta, np.float32)
    target = zeros(delta.shape, delta, np.float32)
    correction = zeros(delta.shape[1:], delta, np.float32)  # v - V of the next valid row
    for t in range(len(delta) - 1, -1, -1):
        next_correction = continues[t] * correction
        advantage[t] = delta[t] + gamma * weight[t] * next_correction
        correction = xp.where(
            valid[t], delta[t] + gamma * trace[t] * next_correction, next_correction
        )
        target[t] = value[t] + correction
    if center:
        total = weight.sum().clip(min=np.finfo(np.float32).tiny)
        advantage -= weight * (advantage.sum() / total)
    return advantage, target


def retrace(
    rollout: Rollout,
    value: Array,
    next_value: Array,
    chosen: Array,
    ratio: Array,
    gamma: float,
    lam: float = 1.0,
) -> Array:
    """Compute Retrace targets of Q(s, a) (Munos et al., 2016, arXiv:1606.02647, eq. 3 and 4).

    Episode ends and rows of weight 0 are treated as in `vtrace`; the target of a row of weight 0 has no meaning.

    Args:
        rollout: T steps of N environments.
        value, next_value: [T, N] the mean of Q under the current policy, at each observation and at each step's true
            successor.
        chosen: [T, N] Q of the actions that were taken.
        ratio: [T, N] pi(a|s) / mu(a|s); clipped at 1.
        gamma: discount per step.
        lam: factor of each trace coefficient.

    Returns:
        target: [T, N] float32.
    """
    valid = rollout.weight > 0
    ended = (rollout.terminated | rollout.truncated) & valid
    next_value = next_valid(value, next_value, ended, valid)
    trace = lam * np.minimum(ratio, 1)
    target = np.empty(value.shape, dtype=np.float32)
    correction = np.zeros(value.shape[1], dtype=np.float32)  # c (target - Q) of the next valid row
    for t in range(len(target) - 1, -1, -1):
        correction = np.where(ended[t], 0, correction)
        target[t] = rollout.reward[t] + gamma * ~rollout.terminated[t] * (
            next_value[t] + correction
        )
        correction = np.where(valid[t], trace[t] * (target[t] - chosen[t]), correction)
    return target
