"""Deep Q-learning (Mnih et al., 2015, doi:10.1038/nature14236); its variants are switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from rlplug_algos.value import ValueLearner
from rlplug_algos.value_config import ValueConfig
from rlplug_core.batches import Transitions
from rlplug_core.nets.modules import QNetwork


@dataclass(frozen=True)
class DQNConfig(ValueConfig):
    """Options of DQN."""

    loss: Literal["huber", "mse"] = "huber"  # of the error: square within 1 and linear beyond, or square


class DQN(ValueLearner):
    """Q-learning on replayed transitions against a target network."""

    Config = DQNConfig
    config: DQNConfig

    def network(self) -> QNetwork:
        c = self.config
        return QNetwork(self.spec, c.net, c.dueling, c.noisy, c.sigma)

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Of r + discount * Q_target(s', a') - Q(s, a), where a' is the best action."""
        value = self.taken(batch).squeeze(1)
        target = batch.reward + batch.discount * self.following(batch).squeeze(1)
        loss = nn.functional.smooth_l1_loss if self.config.loss == "huber" else nn.functional.mse_loss
        return loss(value, target, reduction="none"), (target - value).abs(), value
