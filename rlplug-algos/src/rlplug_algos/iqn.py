"""Implicit quantile networks, IQN (Dabney et al., 2018, arXiv:1806.06923)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlplug_algos.action_values import ONLINE, TARGET, noise_of
from rlplug_algos.value import ValueLearner, chosen
from rlplug_algos.value_config import ValueConfig
from rlplug_core.batches import Transitions
from rlplug_core.config import Count, Positive, integer, log
from rlplug_core.losses import quantile_huber
from rlplug_core.nets.distributional import ImplicitQ


@dataclass(frozen=True)
class IQNConfig(ValueConfig):
    """Options of IQN."""

    quantiles: Count = 8  # drawn for each transition (N)
    target_quantiles: Count = 8  # drawn for what follows it (N')
    acting_quantiles: Count = 32  # whose mean is an action's value (K)
    kappa: Positive = 1.0  # where the quantile loss turns from a square to a line

    search = {
        **ValueConfig.search, "quantiles": integer(1, 64), "target_quantiles": integer(1, 64), "kappa": log(0.1, 10.0),
    }  # fmt: skip


class IQN(ValueLearner):
    """Learns the quantile function of returns at drawn shares; acts by the mean of evenly spaced quantiles."""

    Config = IQNConfig
    config: IQNConfig
    online: ImplicitQ
    target: ImplicitQ

    def network(self) -> ImplicitQ:
        c = self.config
        return ImplicitQ(self.spec, c.net, c.acting_quantiles, c.dueling, c.noisy, c.sigma)

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        """Also the shares at which quantiles are learned and bootstrapped from."""
        c = self.config
        shares = self.generator.random((len(batch.weight), c.quantiles + c.target_quantiles), dtype=np.float32)
        online, target = torch.from_numpy(shares).to(self.device).split([c.quantiles, c.target_quantiles], 1)
        return super().draws(batch) | {"shares": online, "target_shares": target}

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Quantile Huber loss (eq. 3) to r + discount * Z_target(s', a'), both at drawn shares; error of the mean."""
        shares = batch.extras["shares"]
        quantiles = chosen(self.online.distribution(batch.obs, noise_of(batch, ONLINE), shares), batch.action)
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * self.following(batch)
        value = quantiles.detach().mean(1)
        loss = quantile_huber(quantiles, shares, target, self.config.kappa)
        return loss, (target.mean(1) - value).abs(), value

    @torch.no_grad()
    def following(self, batch: Transitions) -> Tensor:
        """The target network's quantiles [B, N'] of the best next actions, which evenly spaced ones choose."""
        drawn, middles = batch.extras["target_shares"], self.target.middles
        shares = torch.cat([drawn, middles.expand(len(drawn), -1)], 1)
        ahead = self.target.distribution(batch.next_obs, noise_of(batch, TARGET), shares)
        ahead, regular = ahead.split([drawn.shape[1], len(middles)], 2)
        return chosen(ahead, self.best(batch, regular))
