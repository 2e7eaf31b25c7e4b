"""Quantile-regression deep Q-learning, QR-DQN (Dabney et al., 2018, arXiv:1710.10044)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlplug_algos.value import ValueLearner
from rlplug_algos.value_config import ValueConfig
from rlplug_core.batches import Transitions
from rlplug_core.config import Count, Positive, integer, log
from rlplug_core.losses import quantile_huber
from rlplug_core.nets.distributional import QuantileQ, middles


@dataclass(frozen=True)
class QRDQNConfig(ValueConfig):
    """Options of QR-DQN."""

    quantiles: Count = 200  # of the distribution of returns
    kappa: Positive = 1.0  # where the quantile loss turns from a square to a line

    search = {**ValueConfig.search, "quantiles": integer(5, 200), "kappa": log(0.1, 10.0)}


class QRDQN(ValueLearner):
    """Learns quantiles of the distribution of returns; acts by their mean."""

    Config = QRDQNConfig
    config: QRDQNConfig
    shares: Tensor

    def build(self) -> None:
        super().build()
        self.register_buffer("shares", middles(self.config.quantiles).to(self.device), persistent=False)

    def network(self) -> QuantileQ:
        c = self.config
        return QuantileQ(self.spec, c.net, c.dueling, c.noisy, c.sigma, c.quantiles)

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Quantile Huber loss to r + discount * Z_target(s', a') (algorithm 1); the error is that of the mean."""
        quantiles = self.taken(batch)
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * self.following(batch)
        value = quantiles.detach().mean(1)
        loss = quantile_huber(quantiles, self.shares, target, self.config.kappa)
        return loss, (target.mean(1) - value).abs(), value
