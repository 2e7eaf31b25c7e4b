"""The weight of the entropy in soft actor-critic, learned or given, and the policy's loss with it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rlplug_core.batches import Transitions


class Temperature(nn.Module):
    """The entropy coefficient alpha of SAC (Haarnoja et al., 2018, arXiv:1812.05905, section 5).

    Args:
        ent_coef: its value at the beginning, or throughout if it is not learned.
        autotune: whether it is learned, as its logarithm.
    """

    def __init__(self, ent_coef: float, autotune: bool) -> None:
        super().__init__()
        self.autotune = autotune
        start = math.log(ent_coef) if autotune else 0.0
        self.log = nn.Parameter(torch.tensor([start]), requires_grad=autotune)

    def forward(self, ent_coef: float) -> Tensor:
        """Return alpha [1] without gradient: the learned one, or the option's present value."""
        return self.log.detach().exp() if self.autotune else torch.full_like(self.log, ent_coef)

    def loss(self, log_prob: Tensor, target_entropy: float) -> Tensor:
        """Compute the temperature's own loss (eq. 18, on the logarithm), which keeps the entropy at a target.

        Args:
            log_prob: [B] of drawn actions; no gradient goes there.
            target_entropy: in nats.

        Returns:
            Losses [B].
        """
        return -self.log * (log_prob.detach() + target_entropy)


def soft_policy_loss(
    batch: Transitions, log_prob: Tensor, q: Tensor, temperature: Temperature, ent_coef: float, target_entropy: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """alpha * log pi(a | s) - Q(s, a) (eq. 7) and the loss of alpha's logarithm (eq. 18), with what to report of both.

    Args:
        log_prob: [B] of actions that the policy drew, with its gradient.
        q: [B] the values of these actions; whichever mean or minimum of critics counts.
        ent_coef: what alpha is where it is not learned.
        target_entropy: in nats.

    Returns:
        The sum [] of both losses, and metrics by name, [] each.
    """
    alpha = temperature(ent_coef)
    policy_loss = alpha * log_prob - q
    loss = batch.mean(policy_loss + temperature.loss(log_prob, target_entropy))
    metrics = {"loss/policy": batch.mean(policy_loss.detach()), "loss/entropy": -batch.mean(log_prob.detach())}
    return loss, {**metrics, "loss/temperature": alpha.squeeze()}
