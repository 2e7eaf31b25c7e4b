"""Providers of environments in JAX, on the device of a run: gymnax, Brax and MuJoCo Playground."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib import import_module
from numbers import Integral
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rlplug_core.errors import MissingPackage, UnknownEnv, UsageError, did_you_mean
from rlplug_core.protocols import Env
from rlplug_core.types import Array, Space
from rlplug_envs.families.listed import listed_ids
from rlplug_envs.families.tensor import DeviceProvider
from rlplug_envs.tensors.adapter import TensorAdapter
from rlplug_envs.tensors.jax_rows import NEVER, Functions, JaxRows, JaxTree

#: Observation, state, reward, whether the episode has terminated, and whether it was truncated.
JaxStep: TypeAlias = tuple[JaxTree, JaxTree, JaxTree, JaxTree, JaxTree]


class JaxWorlds(DeviceProvider):
    """The base of providers of environments in JAX."""

    #: The namespace of the ids, and the name of the extra.
    name: ClassVar[str]
    #: The package to import; without one it is the name.
    module: ClassVar[str] = ""

    def ids(self) -> Iterable[str]:
        return listed_ids(self.name)

    def make(self, id: str, num_envs: int) -> Env:
        """Make `num_envs` rows.

        Raises:
            UnknownEnv: the package has no such id. MissingPackage: it is not installed.
        """
        try:
            package = import_module(self.module or self.name)
            import_module("jax")
        except ModuleNotFoundError as error:
            raise MissingPackage(
                f"'{id}' needs the Python module '{error.name}', which is not installed; install it: python -m pip "
                f"install 'rlplug-envs[{self.name}]'"
            ) from error
        name = id.removeprefix(f"{self.name}/")
        ids = [f"{self.name}/{env_name}" for env_name in self.names(package)]
        if id not in ids:
            raise UnknownEnv(f"unknown environment '{id}'{did_you_mean(id, ids)}")
        functions = self.functions(package, name)
        return TensorAdapter(lambda: JaxRows(functions, num_envs, self.device), id)

    def names(self, package: ModuleType) -> Iterable[str]:
        """Return the names of the environments of the package."""
        raise NotImplementedError

    def functions(self, package: ModuleType, name: str) -> Functions:
        """Return an environment of the package as functions."""
        raise NotImplementedError


class Gymnax(JaxWorlds):
    """Makes environments of gymnax (Lange, 2022)."""

    name = "gymnax"

    def names(self, package: ModuleType) -> Iterable[str]:
        return package.registered_envs

    def functions(self, package: ModuleType, name: str) -> Functions:
        env, params = package.make(name)
        limit = 0
        if "max_steps_in_episode" in {field.name for field in fields(params)}:
            # Its `done` does not tell a time limit from an end of the task, so rlplug counts the steps.
            limit = int(params.max_steps_in_episode)
            params = replace(params, max_steps_in_episode=NEVER)

        def start(key: JaxTree) -> tuple[JaxTree, JaxTree]:
            obs, state = env.reset_env(key, params)
            return obs, state

        def move(key: JaxTree, state: JaxTree, action: JaxTree) -> JaxStep:
            obs, state, reward, done, _ = env.step_env(key, state, action, params)
            return obs, state, reward, done, False

        return Functions(
            start,
            move,
            gymnasium_space(env.observation_space(params), f"gymnax/{name}"),
            gymnasium_space(env.action_space(params), f"gymnax/{name}"),
            limit,
        )


class Brax(JaxWorlds):
    """Makes environments of Brax (Freeman et al., 2021, arXiv:2106.13281), without its own time limit."""

    name = "brax"
    #: The steps of an episode in Brax's own training.
    time_limit = 1_000

    def names(self, package: ModuleType) -> Iterable[str]:
        return import_module("brax.envs")._envs

    def functions(self, package: ModuleType, name: str) -> Functions:
        env = import_module("brax.envs").get_environment(name)
        return _brax_functions(env, self.time_limit)


class Playground(JaxWorlds):
    """Makes environments of MuJoCo Playground (Zakka et al., 2025, arXiv:2502.08844), computed by JAX."""

    name = "playground"
    module = "mujoco_playground"

    def names(self, package: ModuleType) -> Iterable[str]:
        return package.registry.ALL_ENVS

    def functions(self, package: ModuleType, name: str) -> Functions:
        # Its default is Warp, and the state of Warp is not a tree of JAX arrays.
        env = package.registry.load(name, config_overrides={"impl": "jax"})
        limit = int(package.registry.get_default_config(name).episode_length)
        return _brax_functions(env, limit)


def _brax_functions(env: Any, limit: int) -> Functions:
    """Return the functions of an environment with Brax's interface, which MuJoCo Playground also has."""

    def start(key: JaxTree) -> tuple[JaxTree, JaxTree]:
        state = env.reset(key)
        return state.obs, state

    def move(key: JaxTree, state: JaxTree, action: JaxTree) -> JaxStep:
        state = env.step(state, action)
        return state.obs, state, state.reward, state.done, False

    return Functions(
        start,
        move,
        _unbounded(env.observation_size),
        Box(-1, 1, (int(env.action_size),)),
        limit,
    )


def _unbounded(size: Any) -> Space:
    """Return the space of observations with a size: a number, a shape, or several of them by name."""
    if isinstance(size, Mapping):
        return Dict({name: _unbounded(part) for name, part in size.items()})
    shape = (size,) if isinstance(size, Integral) else tuple(size)
    return Box(-np.inf, np.inf, shape)


def gymnasium_space(space: Any, id: str) -> Space:
    """Return one of gymnax's spaces as Gymnasium's.

    Raises:
        UsageError: it is of another type.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        shape = tuple(space.shape)
        return Box(_broadcast(space.low, shape), _broadcast(space.high, shape))
    raise UsageError(f"{id} has a space of the type {kind}, which rlplug does not take from gymnax")


def _broadcast(bound: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(bound, np.float32), shape)
