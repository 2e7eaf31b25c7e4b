"""Advantage actor-critic, the synchronous form of A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.actor_critic import ActorCritic, ActorCriticConfig
from rlplug_core.config import Positive
from rlplug_core.optimiser import Optimiser
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.schedules import Schedule


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """Options of A2C."""

    rule: RuleName = "rmsprop"  # optimiser; rmsprop as in the paper
    optimiser: OptimiserOptions = OptimiserOptions()
    clip: Positive = 0.5  # largest gradient norm


class A2C(ActorCritic):
    """One gradient step per rollout on policy, value and entropy."""

    Config = A2CConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: A2CConfig

    def minimiser(self, lr: Schedule) -> Optimiser:
        c = self.config
        return self.optimiser([self.policy, self.critic], lr, self.schedule("clip"), c.optimiser.rule(c.rule))
