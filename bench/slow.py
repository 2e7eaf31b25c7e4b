"""Slow environments for `scale.py`. A step sleeps and uses no processor, like a simulator on another machine."""

from __future__ import annotations

import time
from typing import ClassVar

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array


class Millisecond(Chain):
    """One step of each environment takes a millisecond."""

    seconds: ClassVar[float] = 0.001

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        time.sleep(self.seconds * self.num_envs)
        return super().move(action)


class TenMilliseconds(Millisecond):
    """One step of each environment takes ten milliseconds."""

    seconds: ClassVar[float] = 0.01
