"""An environment that can be made everywhere but on a node of Ray."""

from __future__ import annotations

import psutil

from rlplug_core.testing.envs import Chain


class FailsOnNodes(Chain):
    """Cannot be made where it is needed."""

    def __init__(self, num_envs: int) -> None:
        if psutil.Process().cmdline()[0].startswith("ray::"):
            raise ValueError("no display")
        super().__init__(num_envs)
