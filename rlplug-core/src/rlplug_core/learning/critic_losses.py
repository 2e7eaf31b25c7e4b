"""The loss of critics Q(s, a) of return distributions on fixed atoms."""

from __future__ import annotations

import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.learning.losses import categorical_projection
from rlplug_core.nets.categorical_critics import CategoricalCritics
from rlplug_core.nets.continuous import ActionCritics


def categorical_critic_loss(
    critics: CategoricalCritics,
    target_critics: ActionCritics,
    batch: Transitions,
    next_action: Tensor,
    reward: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the cross-entropy of every critic to one target: reward + discount * Z_target(s', a') on the atoms.

    Z_target is the distribution with the lowest mean (Seo et al., 2025, arXiv:2505.22642; projection: Bellemare et
    al., 2017, arXiv:1707.06887, algorithm 1).

    Args:
        critics, target_critics: the critics and their targets.
        batch: B transitions.
        next_action: [B, ...] actions a' in the next states.
        reward: [B] n-step sums of rewards, with the bonus of an entropy if there is one.

    Returns:
        The loss, summed over critics, and metrics.
    """
    with torch.no_grad():
        assert isinstance(target_critics, CategoricalCritics)
        next_obs = target_critics.next_obs(batch)
        probability = target_critics.lowest_distribution(next_obs, next_action)
        target = categorical_projection(probability, reward, batch.discount, critics.support)
    logits = critics(critics.obs(batch), batch.action)
    loss = batch.mean(-(target * logits.log_softmax(-1)).sum(-1).sum(0))
    q = critics.means(logits.detach()).mean(0)
    return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q)}
