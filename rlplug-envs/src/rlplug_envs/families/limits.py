"""The time limit of an environment: what its entry in Gymnasium's registry says, or what its package keeps itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlplug_core.types import GymEnv

#: The families whose packages keep limits by themselves, by the package that an environment's class comes from, or one
#: of its bases. A family is imported when such an environment is met.
OWN = {"ale_py": "ale", "highway_env": "highway", "minigrid": "minigrid", "shimmy": "suite"}


def entry_limit(env: Any) -> int:
    """Return the time limit of an environment's entry in Gymnasium's registry; 0 if there is none."""
    spec = env.spec
    return 0 if spec is None else spec.max_episode_steps or 0


def limit_of(env: GymEnv) -> int:
    """Return the steps after which an environment, once reset, truncates its episodes; 0 if no limit is known."""
    packages = {kind.__module__.partition(".")[0] for kind in type(env.unwrapped).__mro__}
    families = [
        import_module(f"{__package__}.{family}")
        for package, family in OWN.items()
        if package in packages
    ]
    own = [family.limit(env) for family in families]
    return min(filter(None, (entry_limit(env), *own)), default=0)
