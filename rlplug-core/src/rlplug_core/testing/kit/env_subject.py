"""The environment, wrapper or distribution of hooks under examination."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.nets.actions import legal, sample
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.plugins import make_env
from rlplug_core.plugins.spec import WrapperSpec
from rlplug_core.protocols import Env
from rlplug_core.seeds import untouched
from rlplug_core.testing.kit.subject import PROBES
from rlplug_core.testing.kit.trees import Leaves, leaves
from rlplug_core.types import Array, Timestep

#: Rows and vector steps in which an environment is looked at, and the seed of its first reset.
ROWS = 3
TURNS = 300
SEED = 7


class EnvSubject:
    """An environment by its id, `module:Name` or `./file.py:Name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, num_envs: int = ROWS) -> Env:
        """New environments of this kind.

        Raises:
            UnknownEnv, MissingPackage, PluginError: as `make_env`.
        """
        return make_env(self.name, num_envs)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """One torch thread, as in a run; the process's generators are afterwards as before."""
        with torch_settings(1), untouched():
            yield


class WrapperSubject(EnvSubject):
    """A wrapper, `NAME` or `NAME:option=value`, around `env` or the first of the kit's environments that it accepts.

    Raises:
        UsageError: nothing has this name, or it refuses them all. PluginError: it cannot be used.
    """

    def __init__(self, name: str, env: str | None = None) -> None:
        super().__init__(name)
        self.wrapping = WrapperSpec.parse(name)
        self.env = env

    def bare(self, num_envs: int = ROWS) -> Env:
        """New environments without the wrapper."""
        return make_env(self.home, num_envs)

    def make(self, num_envs: int = ROWS) -> Env:
        return self.wrapping.around(self.bare(num_envs))

    @cached_property
    def home(self) -> str:
        """Return what it is put around."""
        if self.env is not None:
            return self.env
        refusals = []
        for probe in PROBES:
            target = f"{probe.__module__}:{probe.__qualname__}"
            try:
                self.wrapping.around(make_env(target, ROWS))
            except RlplugError as error:
                refusals.append(str(error))
                continue
            return target
        raise UsageError(
            f"wrapper '{self.name}' refuses all of the kit's environments; name one, --env ({refusals[0]})"
        )


@dataclass
class Played:
    """Steps of an environment, copied as they came: for each its leaves by name, and what was done to get there."""

    steps: list[Leaves]
    actions: list[Array]


def play(env: Env, turns: int = TURNS, seed: int = SEED, first: Timestep | None = None) -> Played:
    """Reset an environment, or go on from `first`, and act at random, the same way for the same observations' masks."""
    now = env.reset(seed) if first is None else first
    env.spec.action.seed(seed)
    played = Played([copied(now)], [])
    for _ in range(turns):
        action = sample(env.spec.action, env.spec.num_envs)
        mask = mask_of(env.spec, now.obs)
        if mask is not None:
            action = legal(env.spec.action, action, mask)
        played.actions.append(action)
        now = env.step(action)
        played.steps.append(copied(now))
    return played


def copied(now: Timestep) -> Leaves:
    """Copies of a timestep's leaves."""
    tree: dict[str, object] = {field.name: getattr(now, field.name) for field in fields(now)}
    tree["episodes"] = [one.plain() for one in now.episodes]
    return leaves(tree)


def rows(mask: Array) -> str:
    """The rows of a mask [N] in words."""
    return ", ".join(map(str, np.flatnonzero(mask)))
