"""REINFORCE with a baseline (Williams, 1992; Sutton and Barto, 2018, section 13.4): returns of whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.a2c import A2C, A2CConfig
from rlplug_core.batches import Rollout
from rlplug_core.buffers.episodes import EpisodeBuffer
from rlplug_core.config import Count, Positive
from rlplug_core.protocols import Buffer
from rlplug_core.rules import RuleName


@dataclass(frozen=True)
class VPGConfig(A2CConfig):
    """Options of REINFORCE."""

    steps: Count = 500  # env steps of whole episodes per update, at least
    lr: Positive = 3e-3  # step size of the optimiser
    rule: RuleName = "adam"  # the optimiser of policy and critic
    standardise: bool = True  # scale advantages to mean 0, deviation 1 in each batch


class VPG(A2C):
    """One gradient step per batch of whole episodes; with `lam` 1 nothing is bootstrapped but what a time limit cut."""

    Config = VPGConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    config: VPGConfig

    def buffer(self) -> Buffer[Rollout]:
        return EpisodeBuffer(self.config.steps)
