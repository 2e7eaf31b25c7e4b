"""DeepMind's control suite, through Shimmy."""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from rlplug_core.types import GymEnv

#: Where Shimmy's environments are defined.
MODULE = "shimmy"


def limit(env: GymEnv) -> int:
    """The steps after which a task of the suite truncates itself; 0 for those of a composer, which count seconds."""
    from dm_control.rl import control
    from shimmy import DmControlCompatibilityV0

    shim: Any = env.unwrapped
    if not isinstance(shim, DmControlCompatibilityV0) or not isinstance(shim._env, control.Environment):
        return 0
    steps: float = shim._env._step_limit
    return ceil(steps) if steps < inf else 0
