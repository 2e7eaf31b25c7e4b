"""The entropy coefficient of soft actor-critic, learned or not, and the losses of the coefficient and the policy."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.batches import Transitions
from rlplug_core.errors import UsageError


class Temperature(nn.Module):
    """The entropy coefficient alpha, or temperature, of SAC (Haarnoja et al., 2018, arXiv:1812.05905, section 5).

    Args:
        ent_coef: its initial value if it is learned; otherwise `forward` and the losses take the current value.
        autotune: whether it is learned, as its logarithm.
        scheduled: whether the option `ent_coef` is a schedule.

    Raises:
        UsageError: it is learned and has a schedule.
    """

    def __init__(
        self,
        ent_coef: float,
        autotune: bool,
        scheduled: bool = False,
    ) -> None:
        super().__init__()
        if autotune and scheduled:
            raise UsageError(
                "ent_coef is learned, and a schedule has no effect on it; give a number, or --no-autotune"
            )
        self.autotune = autotune
        log = math.log(ent_coef) if autotune else 0.0
        self.log = nn.Parameter(torch.tensor([log]), requires_grad=autotune)

    def forward(self, ent_coef: float) -> Tensor:
        """Return alpha [1] without gradient: the learned value, or the current value of the option."""
        return self.log.detach().exp() if self.autotune else torch.full_like(self.log, ent_coef)

    @overridable
    def times_alpha(self, log_prob: Tensor, ent_coef: float) -> Tensor:
        """Compute alpha * log pi(a | s); no gradient reaches alpha.

        Args:
            log_prob: [B] in nats.
            ent_coef: alpha, if it is not learned.

        Returns:
            Terms [B].
        """
        alpha: Tensor = self(ent_coef)
        return alpha * log_prob

    @overridable
    def metric(self, log_prob: Tensor, ent_coef: float) -> Tensor:
        """Compute alpha as a metric of a loss.

        Args:
            log_prob: [B] in nats; only its type matters, a tensor or an array of the fast path.
            ent_coef: alpha, if it is not learned.

        Returns:
            Alpha [], without a gradient.
        """
        alpha: Tensor = self(ent_coef)
        return alpha.squeeze()

    @overridable
    def loss(self, log_prob: Tensor, target_entropy: float | Tensor) -> Tensor:
        """Compute the loss of alpha (eq. 18, on its logarithm), which keeps the entropy at a target.

        Args:
            log_prob: [B] of drawn actions, or its means over all actions; it gets no gradient.
            target_entropy: in nats; a number, or a tensor [B].

        Returns:
            Losses [B].
        """
        return -self.log * (log_prob.detach() + target_entropy)


def expected_of(log_probs: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the means of log pi(a | s) and of Q(s, a) over all actions, weighted by the policy.

    Args:
        log_probs: [B, A] log pi(a | s) in nats.
        q: [B, A] Q(s, a).

    Returns:
        Both [B]; the first is the negative entropy.
    """
    probs = log_probs.exp()
    return (probs * log_probs).sum(-1), (probs * q).sum(-1)


def soft_policy_loss(
    batch: Transitions,
    log_prob: Tensor,
    q: Tensor,
    temperature: Temperature,
    ent_coef: float,
    target_entropy: float | Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute alpha * log pi(a | s) - Q(s, a) (eq. 7) plus the loss of alpha (eq. 18), and metrics of both.

    Args:
        log_prob: [B] of actions that the policy drew, with its gradient; or the result of `expected_of`.
        q: [B] the values of these actions; a mean or minimum over critics.
        ent_coef: alpha, if it is not learned.
        target_entropy: in nats; a number, or a tensor [B].

    Returns:
        The sum [] of both losses, and metrics by name, [] each.
    """
    policy_loss = temperature.times_alpha(log_prob, ent_coef) - q
    loss = batch.mean(policy_loss + temperature.loss(log_prob, target_entropy))
    metrics = {
        "loss/policy": batch.mean(policy_loss.detach()),
        "loss/entropy": -batch.mean(log_prob.detach()),
        "loss/temperature": temperature.metric(log_prob, ent_coef),
    }
    return loss, metrics


def learnable_temperatures(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """Return the logarithms of the learned entropy coefficients in modules, each once."""
    submodules = dict.fromkeys(each for module in modules for each in module.modules())
    return [each.log for each in submodules if isinstance(each, Temperature) and each.autotune]
