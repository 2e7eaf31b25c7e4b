"""The tested environment or wrapper; one on a device returns arrays in place of its tensors."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property

import numpy as np

from rlplug_core.arrays import to_device, to_host
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.nets.actions import legal, sample
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.plugins import make_env
from rlplug_core.plugins.device_episodes import EndedRows
from rlplug_core.plugins.env_base import EnvBase
from rlplug_core.plugins.spec import WrapperSpec
from rlplug_core.protocols import Env
from rlplug_core.testing.kit.subject import KIT_ENVS, name_of
from rlplug_core.testing.kit.trees import Leaves, leaves
from rlplug_core.types import Array, State, Timestep, tree_map

#: The fields of a timestep that are tensors.
TENSORS = ("obs", "final_obs", "reward", "terminated", "truncated", "is_first", "valid")


class Converter(EnvBase):
    """The base of environments that convert the arrays or tensors of another one, `env`, and have its state."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.spec = env.spec

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)

    def close(self) -> None:
        self.env.close()


class AsArrays(Converter):
    """An environment on a device with arrays in place of its tensors; on the CPU they share its memory."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.device = env.spec.device

    def reset(self, seed: int) -> Timestep:
        return _arrays(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        assert self.device is not None
        return _arrays(self.env.step(to_device(action, self.device)))


def _arrays(now: Timestep) -> Timestep:
    """Return a timestep with arrays and the list of its ended episodes, which are read from the device."""
    values = {field.name: getattr(now, field.name) for field in fields(now)}
    for name in TENSORS:
        values[name] = tree_map(to_host, values[name])
    episodes = list(now.episodes) if isinstance(now.episodes, EndedRows) else now.episodes
    return Timestep(**{**values, "episodes": episodes, "ended": bool(episodes)})


#: Number of rows and vector steps of a test, and the seed of its reset.
ROWS = 3
TURNS = 300
SEED = 7


class EnvSubject:
    """An environment by its id, `module:Name` or `./file.py:Name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, num_envs: int = ROWS) -> Env:
        """Create new environments of this kind, with arrays in place of tensors.

        Raises:
            UnknownEnv, MissingPackage, PluginError: see `make_env`.
        """
        env = self.bare(num_envs)
        return env if env.spec.device is None else AsArrays(env)

    def bare(self, num_envs: int = ROWS) -> Env:
        """Create new environments of this kind, with tensors if they have a device."""
        return make_env(self.name, num_envs)

    def actions(self) -> list[Array]:
        """Return random actions [N, ...] for `TURNS` steps after a reset with `SEED`."""
        _, actions = play(self.make())
        return actions


class WrapperSubject(EnvSubject):
    """A wrapper, `NAME` or `NAME:option=value`, around `env` or the first of the kit's environments that it accepts.

    Raises:
        UsageError: no wrapper has this name, or it refuses all environments.
        PluginError: the wrapper cannot be used.
    """

    def __init__(self, name: str, env: str | None = None) -> None:
        super().__init__(name)
        self.wrapping = WrapperSpec.parse(name)
        self.env = env

    def bare(self, num_envs: int = ROWS) -> Env:
        """Create new environments without the wrapper."""
        return make_env(self.main_env, num_envs)

    def make(self, num_envs: int = ROWS) -> Env:
        return self.wrapping.wrap(self.bare(num_envs))

    @cached_property
    def main_env(self) -> str:
        """The name of the environment inside the wrapper."""
        if self.env is not None:
            return self.env
        refusals = []
        for env_class in KIT_ENVS:
            target = name_of(env_class)
            try:
                self.wrapping.wrap(make_env(target, ROWS))
            except RlplugError as error:
                refusals.append(str(error))
                continue
            return target
        raise UsageError(
            f"wrapper '{self.name}' refuses all of the kit's environments; name one, --env ({refusals[0]})"
        )


def play(
    env: Env,
    turns: int = TURNS,
    seed: int = SEED,
) -> tuple[list[Leaves], list[Array]]:
    """Reset an environment and step it with random actions; equal seeds and action masks give equal actions.

    Returns:
        Copies of all timesteps, as leaves by name, and the actions.
    """
    now = env.reset(seed)
    env.spec.action.seed(seed)
    timesteps = [copy_leaves(now)]
    actions: list[Array] = []
    for _ in range(turns):
        action = sample(env.spec.action, env.spec.num_envs)
        mask = mask_of(env.spec, now.obs)
        if mask is not None:
            action = legal(env.spec.action, action, mask)
        actions.append(action)
        now = env.step(action)
        timesteps.append(copy_leaves(now))
    return timesteps, actions


def copy_leaves(now: Timestep) -> Leaves:
    """Return copies of the leaves of a timestep."""
    tree: dict[str, object] = {field.name: getattr(now, field.name) for field in fields(now)}
    tree["episodes"] = [episode.plain() for episode in now.episodes]
    return leaves(tree)


def rows(mask: Array) -> str:
    """Return the rows of a mask [N] as text."""
    return ", ".join(map(str, np.flatnonzero(mask)))
