"""Environments that fork within a step, as some simulators do."""

from __future__ import annotations

import os
import time
from typing import Any

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Timestep


class Forking(Chain):
    """A chain that forks once in a run."""

    steps: int = 0

    def step(self, action: Array) -> Timestep:
        type(self).steps += 1
        if type(self).steps == 20 and os.fork() == 0:
            self.child()
        return super().step(action)

    def child(self) -> Any:
        """Run in the child before it returns into the loop."""


class Lingers(Forking):
    """The child outlives the run by seconds."""

    def child(self) -> None:
        time.sleep(5)
        os._exit(0)


class Returns(Forking):
    """The child returns into the training loop, like its parent."""


class Raises(Forking):
    """The child leaves the training loop by an exception."""

    def child(self) -> None:
        raise SystemExit(0)
