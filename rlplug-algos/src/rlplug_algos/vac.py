"""One-step actor-critic (Sutton and Barto, 2018, section 13.5): the TD error of each step is its advantage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.a2c import A2C, A2CConfig
from rlplug_core.config import Count, Positive, log
from rlplug_core.rules import RuleName


@dataclass(frozen=True)
class VACConfig(A2CConfig):
    """Options of the one-step actor-critic."""

    steps: Count = 1  # rollout length per environment row; more than 1 makes it A2C
    lam: ClassVar[float] = 1.0  # type: ignore[misc]  # takes the option away: a single step has nothing to mix
    lr: Positive = 1e-3  # step size of the optimiser
    rule: RuleName = "adam"  # the optimiser of policy and critic

    search = {"lr": log(1e-5, 1e-2), "entropy": log(1e-5, 0.1)}


class VAC(A2C):
    """A gradient step after every vector step, each transition bootstrapped from its successor."""

    Config = VACConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: VACConfig
