"""Highway's environments, which count the seconds of their world."""

from __future__ import annotations

from typing import Any

from rlplug_core.types import GymEnv

#: Where their environments are defined.
MODULE = "highway_env"
#: The most steps that count as a limit.
MOST = 1_000_000


def limit(env: GymEnv) -> int:
    """Return the steps until a world's time is over; 0 for those without a time, and for other packages' classes.

    A world without a default `duration` ignores one. Time is added up as the world does it: ten times 0.1 is less
    than 1, and takes one step more.
    """
    world: Any = env.unwrapped
    if not type(world).__module__.startswith(MODULE) or "duration" not in world.default_config():
        return 0
    duration = world.config["duration"]
    frequency = world.config["policy_frequency"]
    time = 0.0
    steps = 0
    while time < duration and steps <= MOST:
        time = time + 1 / frequency
        steps = steps + 1
    return steps if steps <= MOST else 0
