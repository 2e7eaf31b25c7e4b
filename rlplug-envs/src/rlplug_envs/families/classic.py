"""The provider of Gymnasium's registry: classic control, toy text, and the environments of other packages."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlplug_core.conflicts import explain_import
from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.protocols import Env
from rlplug_core.types import GymEnv
from rlplug_envs.adapter import Adapter, GymVector, MakeVector
from rlplug_envs.agents import Agents
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families import minigrid, mujoco, pybullet
from rlplug_envs.families.registry import INSTALL, find, has_moved, with_options
from rlplug_envs.games import World, game_of
from rlplug_envs.needs_wrapper import build_or_defer
from rlplug_envs.raw_return import Wrap, wrap_single
from rlplug_envs.tensors.adapter import TensorAdapter, is_tensor_env
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.watch import warn_of_learning

#: Number of environments from which on the environment's own vector is 1.5 times as fast as `SerialEnvs`
#: (`bench/notes/measured-once.md`). For fewer `SerialEnvs` is better: every row of every step is a transition, and each
#: row has its own seed.
NATIVE_FROM = {"CartPole-v0": 12, "CartPole-v1": 12}
#: Why a run in an environment that is an object cannot resume exactly.
HELD = "the environment is an object, and a resumed run gets a new one"
#: Why a drawn environment is not tested for exact resume.
SHOWN = "it only draws frames"


class Gymnasium:
    """Makes environments from Gymnasium's registry; an id may name the module that registers it: "module:Name-v0".

    `arguments` are keyword arguments of the environments, or of `gymnasium.make`: `max_episode_steps`.
    """

    def __init__(self, arguments: Mapping[str, object] | None = None) -> None:
        self.arguments = dict(arguments or {})

    def with_arguments(self, arguments: Mapping[str, object]) -> Gymnasium:
        """Return the same provider with other arguments."""
        return Gymnasium(arguments)

    def ids(self) -> Iterable[str]:
        return sorted(id for id, spec in gymnasium.registry.items() if not has_moved(spec))

    def make(self, id: str, num_envs: int) -> Env:
        """Return `num_envs` environments, as one native vector if that is measured to be faster.

        Raises:
            UnknownEnv: the registry has no such id; the message suggests similar names.
            MissingPackage: a package is not installed; the message has the command that installs it.
        """
        spec = find(id)
        native = spec.entry_point is None or (
            not self.arguments and num_envs >= NATIVE_FROM.get(spec.id, num_envs + 1)
        )
        try:
            spec = with_options(spec, self.arguments)
            arguments = json.dumps(self.arguments, sort_keys=True)
            if native:
                adapter = Native if spec.id in NATIVE_FROM else Adapter
                reason = inexactness(spec.id, native, arguments)
                return adapter(lambda: _make_vector(spec, num_envs), spec.id, reason)
            return _make_serial(spec, num_envs, arguments)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing_package(spec, error) from error

    def adopt(self, make: Callable[[], GymEnv], num_envs: int, id: str) -> Env:
        """Return `num_envs` environments of a class that is not in a registry."""
        envs = build_or_defer(make, lambda make: SerialEnvs(make, num_envs, id))
        if isinstance(envs, SerialEnvs):
            warn_of_learning(envs.envs[0], id)
        return envs

    def adopt_vector(self, make: MakeVector, id: str) -> Env:
        """Return a vector of environments that is not in a registry, of arrays or of tensors on a device."""
        first: Any = make()
        if is_tensor_env(first):
            return TensorAdapter(lambda: first, id)
        vectors = chain([first], iter(make, None))
        return Adapter(lambda: next(vectors), id)

    def adopt_worlds(
        self,
        make: Callable[[], World],
        num_envs: int,
        id: str,
    ) -> Env:
        """Return `num_envs` worlds of many agents that `make` makes, with either interface of PettingZoo."""
        return Agents(lambda: game_of(make()), num_envs, id)

    def hold_world(self, world: World, id: str) -> Env:
        """Return a world that exists already; it stays open, and cannot resume exactly."""
        return HeldAgents(lambda: game_of(world), 1, id, HELD)

    def hold(self, env: GymEnv | GymVector, id: str) -> Env:
        """Return an environment that exists already, or a vector of them; it stays open, and cannot resume exactly."""
        candidate: Any = env
        if is_tensor_env(candidate):
            return TensorAdapter(lambda: candidate, id, HELD)
        if isinstance(env, gymnasium.vector.VectorEnv):
            return HeldVector(lambda: env, id, HELD)
        warn_of_learning(env, id)
        return build_or_defer(lambda: env, lambda make: Held(make, 1, id, 0, HELD))

    def make_shown(self, id: str, render_mode: str) -> Env:
        """Return one environment to watch, made with Gymnasium's `render_mode`.

        Raises:
            UnknownEnv, MissingPackage: as in `make`, also for packages that draw.
            UsageError: the environment cannot be drawn.
        """
        spec = find(id)
        if spec.entry_point is None:
            raise UsageError(
                f"{spec.id} exists only as a vector of environments, which cannot be watched"
            )
        try:
            spec = with_options(spec, mujoco.with_camera(str(spec.entry_point), self.arguments))
            return _make_drawn(spec, render_mode)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing_package(spec, error) from error


def _make_serial(spec: EnvSpec, num_envs: int, arguments: str) -> Env:
    """Return single environments side by side; `arguments` are their keyword arguments as JSON."""
    limit = _limit(spec)
    return build_or_defer(
        lambda: _make_single(spec),
        lambda make: SerialEnvs(make, num_envs, spec.id),
        lambda: SerialEnvs(
            lambda: _make_single(spec),
            num_envs,
            spec.id,
            limit,
            inexactness(spec.id, False, arguments),
        ),
        limit,
    )


def _make_drawn(spec: EnvSpec, render_mode: str) -> Env:
    """Return one environment that is drawn."""
    limit = _limit(spec)
    return build_or_defer(
        lambda: _make_single(spec, render_mode),
        lambda make: SerialEnvs(make, 1, spec.id, 0, SHOWN),
        lambda: SerialEnvs(lambda: _make_single(spec, render_mode), 1, spec.id, limit, SHOWN),
        limit,
    )


class Held(SerialEnvs):
    """An environment that only its owner closes."""

    def inside(self, wrap: Wrap) -> SerialEnvs:
        """Return the same environment inside the wrapper that `wrap` adds; no other can be made for a test."""
        wrap_env = wrap_single(wrap, self.spec, self._limit)
        (env,) = self.envs
        return Held(lambda: wrap_env(env), 1, self.spec.id, 0, HELD)

    def close(self) -> None:
        pass


class HeldAgents(Agents):
    """A multi-agent world that only its owner closes."""

    def close(self) -> None:
        pass


class HeldVector(Adapter):
    """A vector of environments that only its owner closes."""

    def close(self) -> None:
        pass


class Native(Adapter):
    """CartPole's own vector, which ignores masked resets but keeps a limit itself."""

    def limit(self, steps: int) -> None:
        venv: Any = self.venv.unwrapped
        venv.max_episode_steps = min(venv.max_episode_steps, steps)

    def inside(self, wrap: Wrap) -> SerialEnvs:
        """Close this vector, and return as many single environments, each inside the wrapper that `wrap` adds."""
        venv: Any = self.venv.unwrapped
        id, spec, limit = self.spec.id, find(self.spec.id), int(venv.max_episode_steps)
        self.close()
        rows = SerialEnvs(
            lambda: _make_single(spec), self.spec.num_envs, id, limit, inexactness(id, False)
        )
        return rows.inside(wrap)


@cache
def inexactness(id: str, native: bool, arguments: str = "{}") -> str:
    """Return why the state of this environment cannot be captured; tested once per process.

    `arguments` are its keyword arguments as JSON.
    """
    spec = with_options(gymnasium.registry[id], json.loads(arguments))
    if str(spec.entry_point).startswith(pybullet.MODULE):
        return f"{id}: {pybullet.INEXACT}"
    if native:
        return self_test(lambda: Adapter(lambda: _make_vector(spec, 2), id, ""))
    limit = _limit(spec)
    return self_test(lambda: SerialEnvs(lambda: _make_single(spec), 1, id, min(limit, 20), ""))


def _limit(spec: EnvSpec) -> int:
    """Return the time limit that `SerialEnvs` applies; 0 if wrappers above Gymnasium's TimeLimit may depend on it."""
    return 0 if spec.additional_wrappers else spec.max_episode_steps or 0


def _make_single(spec: EnvSpec, render_mode: str | None = None) -> GymEnv:
    """Return one environment without the checker, and without wrappers that `SerialEnvs` replaces."""
    env = _make_plain(spec, render_mode)
    entry_point = str(spec.entry_point)
    if entry_point.startswith(minigrid.MODULE):
        return minigrid.without_mission(env)
    return pybullet.Quiet(env) if entry_point.startswith(pybullet.MODULE) else env


def _make_plain(spec: EnvSpec, render_mode: str | None) -> GymEnv:
    """Return one environment as its package makes it; `render_mode` is not passed on if it is None."""
    render_arguments: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    with (
        mujoco.quiet_mujoco()
        if str(spec.entry_point).startswith(mujoco.MODULE)
        else mujoco.make_unversioned(spec)
    ):
        if not _limit(spec):
            return gymnasium.make(spec, disable_env_checker=True, **render_arguments)
        spec_copy = copy.copy(spec)
        spec_copy.order_enforce = False
        return gymnasium.make(
            spec_copy, max_episode_steps=-1, disable_env_checker=True, **render_arguments
        )


def _make_vector(spec: EnvSpec, num_envs: int) -> GymVector:
    return gymnasium.make_vec(spec, num_envs=num_envs, vectorization_mode="vector_entry_point")


def _missing_package(spec: EnvSpec, error: Exception) -> MissingPackage:
    entry_point = str(spec.entry_point or spec.vector_entry_point)
    is_missing = isinstance(error, ModuleNotFoundError)
    if not is_missing and (reason := explain_import(error, entry_point.partition(":")[0])):
        return MissingPackage(f"'{spec.id}' cannot be imported: {error}{reason}")
    packages = (
        package
        for prefix, package in INSTALL.items()
        if entry_point.startswith(prefix) or spec.namespace == prefix
    )
    package = next(packages, error.name if isinstance(error, ModuleNotFoundError) else None)
    if package is None:
        return MissingPackage(f"'{spec.id}' cannot be imported: {error}")
    remedy = f"python -m pip install {package}"
    return MissingPackage(
        f"'{spec.id}' needs a package that is not installed; install it: {remedy}"
    )
