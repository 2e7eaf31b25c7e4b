"""Environments that fork in the middle of a step, as some simulators do."""

from __future__ import annotations

import os
import time
from typing import Any

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Timestep


class Forking(Chain):
    """A chain that forks once in a run."""

    forked: int = 0

    def step(self, action: Array) -> Timestep:
        type(self).forked += 1
        if type(self).forked == 20 and os.fork() == 0:
            self.child()
        return super().step(action)

    def child(self) -> Any:
        """What the child does, before it comes back into the loop."""


class Lingers(Forking):
    """The child outlives the run by seconds."""

    def child(self) -> None:
        time.sleep(5)
        os._exit(0)


class Returns(Forking):
    """The child comes back into the training loop, beside its parent."""


class Raises(Forking):
    """The child breaks out of the training loop."""

    def child(self) -> None:
        raise SystemExit(0)
