"""Environments whose state cannot be captured, or that say in a file what was done with them."""

from __future__ import annotations

from dataclasses import replace

from rlplug_core.testing.envs import Chain
from rlplug_core.types import State


class Uncaptured(Chain):
    """A chain whose state lies in a simulator that gives it to nobody."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = replace(self.spec, inexact="Uncaptured: a test")

    def state_dict(self) -> State:
        return {"inexact": self.spec.inexact}
