"""The provider of Gymnasium's registry: classic control, toy text, and the environments of other packages."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import chain
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator, parse_env_id

from rlplug_core.config.import_string import describe, import_quietly
from rlplug_core.config.module_search import look_here
from rlplug_core.conflicts import explain_import
from rlplug_core.errors import MissingPackage, UnknownEnv, UsageError, did_you_mean, warn
from rlplug_core.plugins.families import family_of
from rlplug_core.plugins.user_envs import check_arguments
from rlplug_core.protocols import Env
from rlplug_core.types import GymEnv
from rlplug_envs.adapter import Adapter, GymVector, MakeVector
from rlplug_envs.agents import Agents
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families import crafter, minigrid, mujoco, pybullet
from rlplug_envs.games import World, game_of
from rlplug_envs.needs_wrapper import build_or_defer
from rlplug_envs.tensors.adapter import TensorAdapter, is_tensor_env
from rlplug_envs.vector import SerialEnvs, Wrap
from rlplug_envs.watch import say_learning

#: Number of environments above which the environment's own vector is 1.5 times as fast as `SerialEnvs`
#: (`bench/notes/measured-once.md`). Below it `SerialEnvs` is better: every row of every step is a transition, and each
#: row has its own seed.
NATIVE_FROM = {"CartPole-v0": 12, "CartPole-v1": 12}
#: The end of older ids of Atari games, after the name of the game.
_OLDER = re.compile(r"(-ram)?(NoFrameskip|Deterministic)?$")
#: What to install, by the module that defines an environment or the namespace of its id.
INSTALL = {
    "gymnasium.envs.box2d": "'rlplug-envs[box2d]'",
    mujoco.MODULE: "'rlplug-envs[mujoco]'",
    "gymnasium.envs.phys2d": "'gymnasium[jax]'",
    "gymnasium.envs.tabular": "'gymnasium[jax]'",
    "ALE": "'rlplug-envs[atari]'",
    "MinAtar": "'rlplug-envs[minatar]'",
    "dm_control": "'rlplug-envs[dm-control]'",
    "minigrid": "'rlplug-envs[minigrid]'",
    "pybullet_envs_gymnasium": "'rlplug-envs[pybullet]'",
}
#: The argument of `gymnasium.make` that is a time limit.
LIMIT = "max_episode_steps"
#: Why a run in an environment that was handed over cannot resume exactly.
HELD = "the environment was handed over as an object, which a resumed run is given anew"
#: Why a drawn environment is not tested for exact resume.
SHOWN = "it is only watched"
#: Packages that register environments without one namespace of their own, and the group for others.
REGISTRARS = ("gymnasium_robotics", "highway_env", "shimmy")
GROUP = "gymnasium.envs"
#: Packages that register their environments only once they are imported: by a pattern of ids.
IMPORTS = {
    "ALE/*": "ale_py",
    "MinAtar/*": "minatar.gym",
    "MiniGrid-*": "minigrid",
    "BabyAI-*": "minigrid",
    "*Bullet*Env-v0": "pybullet_envs_gymnasium",
    "dm_control/*": "shimmy",
}


class Gymnasium:
    """Makes environments from Gymnasium's registry; an id may name the module that registers it: "module:Name-v0".

    `arguments` are keyword arguments of the environments, or of `gymnasium.make`: `max_episode_steps`.
    """

    def __init__(self, arguments: Mapping[str, object] | None = None) -> None:
        self.arguments = dict(arguments or {})

    def with_arguments(self, arguments: Mapping[str, object]) -> Gymnasium:
        """The same with other arguments."""
        return Gymnasium(arguments)

    def ids(self) -> Iterable[str]:
        return sorted(id for id, spec in gymnasium.registry.items() if not _is_gone(spec))

    def make(self, id: str, num_envs: int) -> Env:
        """`num_envs` environments, as one native vector if that is measured to be faster.

        Raises UnknownEnv with the nearest names, MissingPackage with the line that installs the missing package.
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
                return adapter(lambda: _vector(spec, num_envs), spec.id, reason)
            return _serial(spec, num_envs, arguments)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing(spec, error) from error

    def adopt(self, make: Callable[[], GymEnv], num_envs: int, id: str) -> Env:
        """`num_envs` environments of a class that no registry holds."""
        made = build_or_defer(make, lambda make: SerialEnvs(make, num_envs, id))
        if isinstance(made, SerialEnvs):
            say_learning(made.envs[0], id)
        return made

    def adopt_vector(self, make: MakeVector, id: str) -> Env:
        """A vector of environments that no registry holds, of arrays or of tensors on a device."""
        first: Any = make()
        if is_tensor_env(first):
            return TensorAdapter(lambda: first, id)
        made = chain([first], iter(make, None))
        return Adapter(lambda: next(made), id)

    def adopt_worlds(self, make: Callable[[], World], num_envs: int, id: str) -> Env:
        """`num_envs` worlds of many agents that `make` makes, with either interface of PettingZoo."""
        return Agents(lambda: game_of(make()), num_envs, id)

    def hold_world(self, world: World, id: str) -> Env:
        """A world that exists already; it stays open, and cannot resume exactly."""
        return HeldAgents(lambda: game_of(world), 1, id, HELD)

    def hold(self, env: GymEnv | GymVector, id: str) -> Env:
        """An environment that exists already, or a vector of them; it stays open, and cannot resume exactly."""
        given: Any = env
        if is_tensor_env(given):
            return TensorAdapter(lambda: given, id, HELD)
        if isinstance(env, gymnasium.vector.VectorEnv):
            return HeldVector(lambda: env, id, HELD)
        say_learning(env, id)
        return build_or_defer(lambda: env, lambda make: Held(make, 1, id, 0, HELD))

    def make_shown(self, id: str, render_mode: str) -> Env:
        """One environment to be watched, made with Gymnasium's `render_mode`.

        Raises UnknownEnv and MissingPackage as `make`, also for what draws; UsageError if nothing draws.
        """
        spec = find(id)
        if spec.entry_point is None:
            raise UsageError(
                f"{spec.id} is a vector of environments alone, which cannot be watched"
            )
        try:
            spec = with_options(spec, mujoco.with_camera(str(spec.entry_point), self.arguments))
            return _render_env(spec, render_mode)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing(spec, error) from error


def _serial(spec: EnvSpec, num_envs: int, arguments: str) -> Env:
    """Return single environments side by side; `arguments` are their keyword arguments as JSON."""
    limit = _limit(spec)
    return build_or_defer(
        lambda: _single(spec),
        lambda make: SerialEnvs(make, num_envs, spec.id),
        lambda: SerialEnvs(
            lambda: _single(spec), num_envs, spec.id, limit, inexactness(spec.id, False, arguments)
        ),
        limit,
    )


def _render_env(spec: EnvSpec, render_mode: str) -> Env:
    """Return one environment that is drawn."""
    limit = _limit(spec)
    return build_or_defer(
        lambda: _single(spec, render_mode),
        lambda make: SerialEnvs(make, 1, spec.id, 0, SHOWN),
        lambda: SerialEnvs(lambda: _single(spec, render_mode), 1, spec.id, limit, SHOWN),
        limit,
    )


class Held(SerialEnvs):
    """An environment that is someone else's to close."""

    def inside(self, wrap: Wrap) -> SerialEnvs:
        """The same environment inside what `wrap` puts around it; no other can be made for a test."""
        around = self.around(wrap)
        (env,) = self.envs
        return Held(lambda: around(env), 1, self.spec.id, 0, HELD)

    def close(self) -> None:
        pass


class HeldAgents(Agents):
    """A world of many agents that is someone else's to close."""

    def close(self) -> None:
        pass


class HeldVector(Adapter):
    """A vector of environments that is someone else's to close."""

    def close(self) -> None:
        pass


class Native(Adapter):
    """CartPole's own vector, which ignores masked resets but keeps a limit itself."""

    def limit(self, steps: int) -> None:
        venv: Any = self.venv.unwrapped
        venv.max_episode_steps = min(venv.max_episode_steps, steps)

    def inside(self, wrap: Wrap) -> SerialEnvs:
        """The same number of single environments, each inside what `wrap` puts around it; takes this one's place."""
        venv: Any = self.venv.unwrapped
        id, spec, limit = self.spec.id, find(self.spec.id), int(venv.max_episode_steps)
        self.close()
        rows = SerialEnvs(
            lambda: _single(spec), self.spec.num_envs, id, limit, inexactness(id, False)
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
        return self_test(lambda: Adapter(lambda: _vector(spec, 2), id, ""))
    limit = _limit(spec)
    return self_test(lambda: SerialEnvs(lambda: _single(spec), 1, id, min(limit, 20), ""))


def find(id: str) -> EnvSpec:
    """The registry's entry for an id, after importing the module that it names, if it names one."""
    module, _, name = id.rpartition(":")
    namespace = name.partition("/")[0] if "/" in name else ""
    if module and not all(part.isidentifier() for part in module.split(".")):
        own = f"; its arguments are given as --env.{name.replace('=', ' ')}" if "=" in name else ""
        raise UnknownEnv(
            f"'{id}': '{module}' is not a module's name; write ./file.py:Name or module:Name-v0{own}"
        )
    if module:
        look_here(module)
    for needed in filter(
        None, (module, *(of for pattern, of in IMPORTS.items() if fnmatchcase(name, pattern)))
    ):
        try:
            _register(needed)
        except ModuleNotFoundError as error:
            package = INSTALL.get(namespace, INSTALL.get(needed, error.name))
            raise _not_there(id, error.name, f"python -m pip install {package}") from error
    if name not in gymnasium.registry:
        _bring(name)
    spec = gymnasium.registry.get(name)
    if spec is None or _is_gone(spec):
        raise UnknownEnv(_unknown(name, module))
    return spec


def _bring(id: str) -> None:
    """Import the package that registers an id: that of its family, or else all that register some.

    Raises:
        MissingPackage: its family is not installed.
    """
    family = family_of(id)
    if family is None or not family.module:
        import_registrars()
    elif family.installed:
        _register(family.module)
    else:
        raise _not_there(id, family.module, family.install_line)


def _not_there(id: str, module: str | None, remedy: str) -> MissingPackage:
    return MissingPackage(
        f"'{id}' needs the Python module '{module}', which is not installed; install it: {remedy}"
    )


@cache
def import_registrars() -> None:
    """Import the installed packages that are known to register environments; each may hold the id that is looked for.

    Gymnasium does so no more. A package that cannot be imported has no environments, and says so.
    """
    declared = [
        point.module
        for group in entry_points().groups
        if group.startswith(GROUP)
        for point in entry_points(group=group)
    ]
    known = [module for module in REGISTRARS if find_spec(module) is not None]
    for module in dict.fromkeys([*declared, *known]):
        try:
            import_quietly(module)
        except Exception as error:  # noqa: BLE001 - a foreign package may raise anything while it is imported
            warn(
                f"the environments of '{module}' are left out: {describe(error)}{explain_import(error, module)}"
            )


def with_options(spec: EnvSpec, arguments: Mapping[str, Any]) -> EnvSpec:
    """A registry's entry with arguments of one's own.

    Raises:
        UsageError: the environment takes none of this name, or the time limit is not a number of steps.
    """
    own = dict(arguments)
    made = copy.copy(spec)
    if LIMIT in own:
        made.max_episode_steps = _limit_option(own.pop(LIMIT), spec.id)
    if own:
        entry = spec.entry_point or spec.vector_entry_point
        check_arguments(load_env_creator(entry) if isinstance(entry, str) else entry, spec.id, own)
    made.kwargs = {**spec.kwargs, **own}
    return made


def _limit_option(steps: object, id: str) -> int | None:
    """Return the time limit of one's own; None for -1, which is Gymnasium's word for no limit at all."""
    if type(steps) is not int or (steps < 1 and steps != -1):  # a bool is an int to isinstance
        raise UsageError(
            f"'{id}': {LIMIT} is {steps!r}; give a whole number from 1 on, or -1 for no time limit"
        )
    return None if steps == -1 else steps


def _register(module: str) -> None:
    """Import what registers environments; MinAtar's wants to be asked for it, and says that it was twice."""
    with pybullet.nothing_said():  # one says when it was built
        imported = import_module(module)
    if module == crafter.MODULE:
        crafter.register()
    if module == "minatar.gym" and "MinAtar/Breakout-v1" not in gymnasium.registry:
        imported.register_envs()


def _unknown(id: str, module: str) -> str:
    """Return a message about an id that is not in the registry: other versions, then near names, then the namespace.

    `module` is the module in the id that should register it, or "".
    """
    known = {name for name, spec in gymnasium.registry.items() if not _is_gone(spec)}
    try:
        namespace, name, _ = parse_env_id(id)
    except gymnasium.error.Error:
        return f"'{id}' is not an environment id; one looks like 'CartPole-v1' or 'ALE/Pong-v5'"
    versions = sorted(
        other
        for other in known
        if (gymnasium.registry[other].namespace, gymnasium.registry[other].name)
        == (namespace, name)
    )
    there = (
        f"; there is {' and '.join(repr(other) for other in versions)}"
        if versions
        else _atari(name)
    )
    if there:
        return f"unknown environment '{id}'{there}"
    namespaces = {gymnasium.registry[other].namespace for other in known}
    hint = did_you_mean(id, known)
    if namespace not in namespaces and not hint:
        hint = f": no installed package provides the namespace '{namespace}'"
    own = "" if module else f" (if a module of yours registers it, write module:{id})"
    return f"unknown environment '{id}'{hint}{own}"


def _atari(name: str) -> str:
    """Return the current id of an older Atari id such as PongNoFrameskip-v4, for a message; or ""."""
    id = f"ALE/{_OLDER.sub('', name)}-v5"
    family = family_of(id)
    if family is None:
        return ""
    return f"; there is '{id}'" + (
        "" if family.installed else f", which is to be installed: {family.install_line}"
    )


def _is_gone(spec: EnvSpec) -> bool:
    """Gymnasium keeps the ids of MuJoCo's v2 and v3 environments only to say that they moved away."""
    return getattr(spec.entry_point, "__name__", "") == "_raise_mujoco_py_error"


def _limit(spec: EnvSpec) -> int:
    """The time limit that `SerialEnvs` can keep itself: wrappers above Gymnasium's own TimeLimit may depend on it."""
    return 0 if spec.additional_wrappers else spec.max_episode_steps or 0


def _single(spec: EnvSpec, render_mode: str | None = None) -> GymEnv:
    """One environment without the checker, and without wrappers that `SerialEnvs` replaces."""
    env = _plain(spec, render_mode)
    where = str(spec.entry_point)
    if where.startswith(minigrid.MODULE):
        return minigrid.without_mission(env)
    return pybullet.Quiet(env) if where.startswith(pybullet.MODULE) else env


def _plain(spec: EnvSpec, render_mode: str | None) -> GymEnv:
    """One environment as its package makes it; one that cannot be drawn need not know of `render_mode`."""
    drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    with (
        mujoco.quiet_mujoco()
        if str(spec.entry_point).startswith(mujoco.MODULE)
        else mujoco.fitting(spec)
    ):
        if not _limit(spec):
            return gymnasium.make(spec, disable_env_checker=True, **drawn)
        bare = copy.copy(spec)
        bare.order_enforce = False
        return gymnasium.make(bare, max_episode_steps=-1, disable_env_checker=True, **drawn)


def _vector(spec: EnvSpec, num_envs: int) -> GymVector:
    return gymnasium.make_vec(spec, num_envs=num_envs, vectorization_mode="vector_entry_point")


def _missing(spec: EnvSpec, error: Exception) -> MissingPackage:
    where = str(spec.entry_point or spec.vector_entry_point)
    is_missing = isinstance(error, ModuleNotFoundError)
    if not is_missing and (why := explain_import(error, where.partition(":")[0])):
        return MissingPackage(f"'{spec.id}' cannot be imported: {error}{why}")
    known = (
        package
        for prefix, package in INSTALL.items()
        if where.startswith(prefix) or spec.namespace == prefix
    )
    package = next(known, error.name if isinstance(error, ModuleNotFoundError) else None)
    if package is None:
        return MissingPackage(f"'{spec.id}' cannot be imported: {error}")
    remedy = f"python -m pip install {package}"
    return MissingPackage(
        f"'{spec.id}' needs a package that is not installed; install it: {remedy}"
    )
