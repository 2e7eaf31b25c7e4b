"""Environments that are only valid inside a wrapper: the check waits until the wrapper is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from gymnasium.wrappers import TimeLimit

from rlplug_core.errors import BadEnv, MissingPackage, PluginError, RlplugError
from rlplug_core.plugins.env_base import EnvBase
from rlplug_core.protocols import Env
from rlplug_core.types import Array, GymEnv, State, Timestep
from rlplug_envs.raw_return import with_raw_return

#: Makes one environment; puts one inside a wrapper; makes a vector of environments.
Make = Callable[[], GymEnv]
Wrap = Callable[[GymEnv], GymEnv]
Build = Callable[[Make], Env]


class NeedsWrapper(EnvBase):
    """Replaces an environment that was refused, until it is inside a wrapper; all other methods raise the refusal.

    Args:
        make: makes one environment.
        build: makes the vector from `make`.
        limit: truncate episodes after this many of the environment's own steps; 0 leaves that to the environment.
        refusal: why the environment is not valid.
    """

    def __init__(
        self,
        make: Make,
        build: Build,
        limit: int,
        refusal: RlplugError,
    ) -> None:
        self.make = make
        self.build = build
        self.limit_steps = limit
        self.refusal = refusal

    def inside(self, wrap: Wrap) -> Env:
        """Return the environments inside `wrap`; the sum of their own rewards counts if they are numbers."""
        make = self.make
        limit = self.limit_steps

        def make_inside() -> GymEnv:
            env = make()
            return wrap(with_raw_return(TimeLimit(env, limit) if limit else env))

        return build_or_defer(make_inside, self.build)

    def _refuse(self) -> NoReturn:
        raise self.refusal

    def __getattr__(self, name: str) -> NoReturn:
        """Raise the refusal for `spec`: there is none."""
        if name == "spec":
            self._refuse()
        raise AttributeError(name)

    def reset(self, seed: int) -> Timestep:
        """Raise the refusal."""
        self._refuse()

    def step(self, action: Array) -> Timestep:
        """Raise the refusal."""
        self._refuse()

    def state_dict(self) -> State:
        """Raise the refusal."""
        self._refuse()

    def load_state_dict(self, state: State) -> None:
        """Raise the refusal."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: no environment is open."""


def build_or_defer(
    make: Make,
    build: Build,
    build_bare: Callable[[], Env] | None = None,
    limit: int = 0,
) -> Env:
    """Return the vector of environments; if it is refused, a `NeedsWrapper` instead.

    Args:
        make: makes one environment.
        build: makes the vector from `make`, without a time limit.
        build_bare: makes the vector without a wrapper, with its time limit; None if that is the same.
        limit: the time limit that wrappers go around; 0 for none.
    """
    try:
        return build_bare() if build_bare else build(make)
    except MissingPackage:
        raise
    except (BadEnv, PluginError) as refusal:
        return NeedsWrapper(make, build, limit, refusal)
