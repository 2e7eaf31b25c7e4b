"""Asynchronous advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783): A2C's learner in asynchronous workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlplug_algos.a2c import A2C, A2CConfig
from rlplug_core.config import Count, Positive


@dataclass(frozen=True)
class A3CConfig(A2CConfig):
    """Options of A3C: those of A2C, with the paper's longer rollouts."""

    steps: Count = 20  # rollout length per environment row
    lr: Positive = 1e-3  # step size of the optimiser


class A3C(A2C):
    """The same update as A2C; gradients of all workers go into one set of parameters without a lock."""

    Config = A3CConfig
    runners: ClassVar[tuple[str, ...]] = ("async", "sync")
    config: A3CConfig
