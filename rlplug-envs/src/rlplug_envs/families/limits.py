"""The time limit of an environment, from its entry in Gymnasium's registry or from its own package."""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from rlplug_core.types import GymEnv
from rlplug_envs.families import ale

#: The most steps of a highway that count as a limit.
MOST_STEPS = 1_000_000


def entry_limit(env: Any) -> int:
    """Return the time limit of an environment's entry in Gymnasium's registry; 0 if there is none."""
    spec = env.spec
    return 0 if spec is None else spec.max_episode_steps or 0


def limit_of(env: GymEnv) -> int:
    """Return the steps after which an environment, once reset, truncates its episodes; 0 if no limit is known."""
    packages = {kind.__module__.partition(".")[0] for kind in type(env.unwrapped).__mro__}
    package_limits = [
        limit(env) for package, limit in PACKAGE_LIMITS.items() if package in packages
    ]
    return min(filter(None, (entry_limit(env), *package_limits)), default=0)


def highway_limit(env: GymEnv) -> int:
    """Return the steps until a world's time is over; 0 for those without a time, and for other packages' classes.

    A world without a default `duration` ignores this option. Time is summed as the world sums it: ten times 0.1 is
    less than 1, so it takes one more step.
    """
    world: Any = env.unwrapped
    is_highway = type(world).__module__.startswith("highway_env")
    if not is_highway or "duration" not in world.default_config():
        return 0
    duration = world.config["duration"]
    frequency = world.config["policy_frequency"]
    time = 0.0
    steps = 0
    while time < duration and steps <= MOST_STEPS:
        time = time + 1 / frequency
        steps = steps + 1
    return steps if steps <= MOST_STEPS else 0


def minigrid_limit(env: GymEnv) -> int:
    """Return the steps after which a world truncates itself; 0 for levels of BabyAI with a limit for each mission."""
    from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

    world: Any = env.unwrapped
    has_varying_limit = isinstance(world, RoomGridLevel) and not world.fixed_max_steps
    return 0 if has_varying_limit else int(world.max_steps)


def control_suite_limit(env: GymEnv) -> int:
    """Return the steps of a task of DeepMind's control suite; 0 for composer tasks, which count seconds."""
    shim: Any = env.unwrapped
    if type(shim).__module__ != "shimmy.dm_control_compatibility":  # others need no dm_control
        return 0
    from dm_control.rl import control

    steps: float = shim._env._step_limit if isinstance(shim._env, control.Environment) else inf
    return ceil(steps) if steps < inf else 0


#: The limits that packages keep themselves, by the package of an environment's class or of one of its bases.
PACKAGE_LIMITS = {
    "ale_py": ale.limit,
    "highway_env": highway_limit,
    "minigrid": minigrid_limit,
    "shimmy": control_suite_limit,
}
