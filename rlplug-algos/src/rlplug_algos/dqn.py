"""Deep Q-learning (Mnih et al., 2015, doi:10.1038/nature14236); its variants are switches."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlplug_algos.value import ValueLearner
from rlplug_algos.value_config import ValueConfig
from rlplug_core.batches import Transitions
from rlplug_core.losses import Regression, regression


@dataclass(frozen=True)
class DQNConfig(ValueConfig):
    """Options of DQN."""

    loss: Regression = "huber"  # of the error: square within 1 and linear beyond, or square


class DQN(ValueLearner):
    """Q-learning on replayed transitions against a target network."""

    Config = DQNConfig
    config: DQNConfig

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Of r + discount * Q_target(s', a') - Q(s, a), where a' is the best action."""
        value = self.taken(batch).squeeze(1)
        target = batch.reward + batch.discount * self.following(batch).squeeze(1)
        return regression(value, target, self.config.loss), (target - value).abs(), value
