"""One-step actor-critic (Sutton and Barto, 2018, section 13.5): the TD error of each step is its advantage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.a2c import A2C, A2CConfig
from rlplug_core.config import Count, Positive
from rlplug_core.rules import RuleName


@dataclass(frozen=True)
class VACConfig(A2CConfig):
    """Options of the one-step actor-critic."""

    steps: Count = 1  # rollout length per environment row; more than 1 makes it A2C
    lr: Positive = 1e-3  # step size of the optimiser
    rule: RuleName = "adam"  # the optimiser of policy and critic


class VAC(A2C):
    """A gradient step after every vector step, each transition bootstrapped from its successor."""

    Config = VACConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: VACConfig
