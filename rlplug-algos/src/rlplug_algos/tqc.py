"""Truncated quantile critics (Kuznetsov et al., 2020, arXiv:2005.04269)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlplug_algos.sac import SAC, SACConfig
from rlplug_core.batches import Transitions
from rlplug_core.config import Count, Natural
from rlplug_core.errors import UsageError
from rlplug_core.losses import quantile_huber
from rlplug_core.nets.actor_critic import ActionCritic


@dataclass(frozen=True)
class TQCConfig(SACConfig):
    """Options of TQC."""

    quantiles: Count = 25  # quantiles of the return that each critic estimates
    drop: Natural = 2  # times the critics, the largest of all quantiles, which the target leaves out


class TQC(SAC):
    """SAC with critics of the return's distribution, the top of which no target sees."""

    Config = TQCConfig
    config: TQCConfig
    shares: Tensor

    def networks(self) -> None:
        c = self.config
        if c.drop >= c.quantiles:
            raise UsageError(f"tqc: drop is {c.drop} of {c.quantiles} quantiles and leaves none; set a lower --drop")
        super().networks()
        shares = (torch.arange(c.quantiles) + 0.5) / c.quantiles
        self.register_buffer("shares", shares.repeat(c.critics), persistent=False)

    def critic(self) -> nn.Module:
        return ActionCritic(self.spec, self.config.net, self.config.quantiles)

    def loss(self, batch: Transitions) -> tuple[Any, ...]:
        """Quantile Huber loss of all quantiles of all critics, on average (eq. 12 and 13)."""
        quantiles = pooled(self.critics(batch.obs, batch.action))
        losses = quantile_huber(quantiles, self.shares, self.target(batch)) / quantiles.shape[1]
        loss = batch.mean(losses)
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(quantiles.detach().mean(1))}

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """r + discount * (z - temperature * log pi(a' | s')) for the smallest quantiles z of all critics (eq. 11)."""
        c = self.config
        action, log_prob = self.head.draw(self.policy(batch.next_obs), batch.extras["next_noise"])
        ordered, _ = pooled(self.target_critics(batch.next_obs, action)).sort(1)
        soft = ordered[:, : c.critics * (c.quantiles - c.drop)] - (self.temperature() * log_prob).unsqueeze(1)
        target: Tensor = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * soft
        return target

    def value(self, batch: Transitions, action: Tensor) -> Tensor:
        """The mean of all quantiles."""
        return pooled(self.critics(batch.obs, action)).mean(1)


def pooled(quantiles: Tensor) -> Tensor:
    """Those of all critics [n, B, M] side by side, [B, n * M]."""
    return quantiles.transpose(0, 1).flatten(1)
