"""The time limit of an environment: what its entry in Gymnasium's registry says, or what its package keeps itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlplug_core.types import GymEnv
from rlplug_envs.families import ale, highway, minigrid, suite

#: Limits that packages keep by themselves, by the package that an environment's class comes from, or one of its bases.
OWN: Mapping[str, Callable[[GymEnv], int]] = {
    ale.MODULE: ale.limit, highway.MODULE: highway.limit, minigrid.MODULE: minigrid.limit, suite.MODULE: suite.limit
}  # fmt: skip


def registered(env: Any) -> int:
    """The time limit that an environment's entry in Gymnasium's registry says; 0 where there is none."""
    spec = env.spec
    return 0 if spec is None else spec.max_episode_steps or 0


def limit_of(env: GymEnv) -> int:
    """The steps after which an environment, once reset, truncates its episodes at the latest; 0 where none is known."""
    packages = {kind.__module__.partition(".")[0] for kind in type(env.unwrapped).__mro__}
    own = [tell(env) for package, tell in OWN.items() if package in packages]
    return min(filter(None, (registered(env), *own)), default=0)
