"""The weight of the entropy in soft actor-critic, learned or given."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


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
        """Return its own loss [B] (eq. 18, on the logarithm), which keeps the entropy at `target_entropy` nats.

        `log_prob` [B] is that of drawn actions.
        """
        return -self.log * (log_prob.detach() + target_entropy)
