"""Categorical deep Q-learning, C51 (Bellemare et al., 2017, arXiv:1707.06887)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlplug_algos.value import ValueLearner
from rlplug_algos.value_config import ValueConfig
from rlplug_core.batches import Transitions
from rlplug_core.config import Several, integer
from rlplug_core.errors import UsageError
from rlplug_core.losses import categorical_projection
from rlplug_core.nets.distributional import CategoricalQ


@dataclass(frozen=True)
class C51Config(ValueConfig):
    """Options of C51."""

    atoms: Several = 51  # returns that are told apart
    v_min: float = -10.0  # smallest return
    v_max: float = 10.0  # largest return

    search = {**ValueConfig.search, "atoms": integer(11, 101)}


class C51(ValueLearner):
    """Learns the distribution of returns on equally spaced atoms; acts by its mean."""

    Config = C51Config
    config: C51Config
    online: CategoricalQ

    def network(self) -> CategoricalQ:
        c = self.config
        if c.v_min >= c.v_max:
            raise UsageError(f"v_min must be below v_max, and {c.v_min} is not below {c.v_max}")
        return CategoricalQ(self.spec, c.net, c.v_min, c.v_max, c.atoms, c.dueling, c.noisy, c.sigma)

    def losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy to the projection of r + discount * Z_target(s', a') (algorithm 1); error is the divergence."""
        log_probability, support = self.taken(batch), self.online.support
        target = categorical_projection(self.following(batch).exp(), batch.reward, batch.discount, support)
        loss = -(target * log_probability).sum(1)
        divergence = (loss.detach() + target.xlogy(target).sum(1)).clamp(min=0)
        return loss, divergence, log_probability.detach().exp() @ support
