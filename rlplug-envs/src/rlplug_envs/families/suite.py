"""DeepMind's control suite, through Shimmy."""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from rlplug_core.types import GymEnv

#: Where those of DeepMind's packages are defined.
SHIM = "shimmy.dm_control_compatibility"


def limit(env: GymEnv) -> int:
    """Return the steps after which a task truncates an episode; 0 for composer tasks, which count seconds."""
    shim: Any = env.unwrapped
    if type(shim).__module__ != SHIM:  # others come without dm_control
        return 0
    from dm_control.rl import control

    steps: float = shim._env._step_limit if isinstance(shim._env, control.Environment) else inf
    return ceil(steps) if steps < inf else 0
