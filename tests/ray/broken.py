"""An environment that cannot be made on a node of Ray."""

from __future__ import annotations

import psutil

from rlplug_core.testing.envs import Chain


class FailsOnNodes(Chain):
    """Raises an error in processes of Ray."""

    def __init__(self, num_envs: int) -> None:
        if psutil.Process().cmdline()[0].startswith("ray::"):
            raise ValueError("no display")
        super().__init__(num_envs)
