"""The weight of the entropy in soft actor-critic, learned or given, and the policy's loss with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.batches import Transitions
from rlplug_core.errors import UsageError
from rlplug_core.nets.node import Into, Node, exp
from rlplug_core.types import Array


class Temperature(nn.Module):
    """The entropy coefficient alpha of SAC (Haarnoja et al., 2018, arXiv:1812.05905, section 5).

    Args:
        ent_coef: its value at the beginning, or throughout if it is not learned.
        autotune: whether it is learned, as its logarithm.
        scheduled: whether it shall follow a schedule, which what is learned cannot.

    Raises:
        UsageError: it is learned and shall follow a schedule.
    """

    def __init__(self, ent_coef: float, autotune: bool, scheduled: bool = False) -> None:
        super().__init__()
        if autotune and scheduled:
            raise UsageError(
                "ent_coef is learned, and a schedule would be its first value alone; give a number, or --no-autotune"
            )
        self.autotune = autotune
        start = math.log(ent_coef) if autotune else 0.0
        self.log = nn.Parameter(torch.tensor([start]), requires_grad=autotune)

    def forward(self, ent_coef: float) -> Tensor:
        """Return alpha [1] without gradient: the learned one, or the option's present value."""
        return self.log.detach().exp() if self.autotune else torch.full_like(self.log, ent_coef)

    def weigh(self, log_prob: Any, ent_coef: float) -> Any:
        """Compute alpha * log pi(a | s) [B], of a tensor, a node or an array; no gradient reaches alpha."""
        return self.beside(log_prob, ent_coef) * log_prob

    def beside(self, log_prob: Any, ent_coef: float) -> Any:
        """Return alpha without gradient: [1] beside a tensor, a number beside a node or an array."""
        if isinstance(log_prob, Tensor):
            return self(ent_coef)
        return math.exp(self.log.item()) if self.autotune else ent_coef

    def loss(self, log_prob: Any, target_entropy: Any) -> Any:
        """Compute the temperature's own loss (eq. 18, on the logarithm), which keeps the entropy at a target.

        Args:
            log_prob: [B] of drawn actions, or its means over all; no gradient goes there.
            target_entropy: in nats; a number, or a tensor [B] beside one.

        Returns:
            Losses [B].
        """
        gap = log_prob.detach() + target_entropy
        if isinstance(log_prob, Tensor):
            return -self.log * gap

        def back(slopes: Array, into: Into) -> tuple[()]:
            if self.log in into:
                into[self.log][:] -= slopes.dot(gap)
            return ()

        return Node(-self.log.item() * gap, (), back)


def expected_of(log_probs: Any, q: Any) -> tuple[Any, Any]:
    """Compute the means of log pi(a | s) and of Q(s, a) over the actions of a policy.

    Args:
        log_probs: [B, A] of all actions in nats, as a tensor, a node or an array.
        q: [B, A] the values of all actions, as a tensor, or as an array beside a node or an array.

    Returns:
        Both [B], of the kind of `log_probs`; the first is the entropy with its sign turned.
    """
    share = exp(log_probs)
    return (share * log_probs).sum(-1), (share * q).sum(-1)


def soft_policy_loss(
    batch: Transitions,
    log_prob: Any,
    q: Any,
    temperature: Temperature,
    ent_coef: float,
    target_entropy: Any,
) -> tuple[Tensor, dict[str, Tensor]]:
    """alpha * log pi(a | s) - Q(s, a) (eq. 7) and the loss of alpha's logarithm (eq. 18), with what to report of both.

    Args:
        log_prob: [B] of actions that the policy drew, with its gradient; or what `expected_of` gives.
        q: [B] the values of these actions; whichever mean or minimum of critics counts.
        ent_coef: what alpha is where it is not learned.
        target_entropy: in nats; a number, or a tensor [B] beside one.

    Returns:
        The sum [] of both losses, and metrics by name, [] each.
    """
    alpha = temperature.beside(log_prob, ent_coef)
    policy_loss = alpha * log_prob - q
    loss = batch.mean(policy_loss + temperature.loss(log_prob, target_entropy))
    metrics = {
        "loss/policy": batch.mean(policy_loss.detach()),
        "loss/entropy": -batch.mean(log_prob.detach()),
    }
    told: Any = alpha.squeeze() if isinstance(alpha, Tensor) else np.float32(alpha)
    return loss, {**metrics, "loss/temperature": told}
