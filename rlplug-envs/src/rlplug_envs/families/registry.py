"""Gymnasium's registry: finds an id, imports the package that registers it, and applies arguments."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator, parse_env_id

from rlplug_core.config.import_string import describe, import_quietly
from rlplug_core.config.module_search import search_working_directory
from rlplug_core.conflicts import explain_import
from rlplug_core.errors import MissingPackage, UnknownEnv, UsageError, did_you_mean, warn
from rlplug_core.plugins.families import family_of
from rlplug_core.plugins.user_envs import check_arguments
from rlplug_envs.families import crafter, mujoco, pybullet

#: The end of older ids of Atari games, after the name of the game.
_OLDER = re.compile(r"(-ram)?(NoFrameskip|Deterministic)?$")
#: The requirement to install, by the module that defines an environment or the namespace of its id.
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
#: Packages that register environments in several namespaces or none, and the entry point group of others.
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


def find(id: str) -> EnvSpec:
    """Return the registry's entry for an id; import the module that it names first, if it names one."""
    module, _, name = id.rpartition(":")
    namespace = name.partition("/")[0] if "/" in name else ""
    if module and not all(part.isidentifier() for part in module.split(".")):
        hint = f"; its arguments are given as --env.{name.replace('=', ' ')}" if "=" in name else ""
        raise UnknownEnv(
            f"'{id}': '{module}' is not a module's name; write ./file.py:Name or module:Name-v0{hint}"
        )
    if module:
        search_working_directory(module)
    registrars = [package for pattern, package in IMPORTS.items() if fnmatchcase(name, pattern)]
    for registrar in filter(None, (module, *registrars)):
        try:
            _register(registrar)
        except ModuleNotFoundError as error:
            package = INSTALL.get(namespace, INSTALL.get(registrar, error.name))
            raise _missing_module_error(
                id, error.name, f"python -m pip install {package}"
            ) from error
    if name not in gymnasium.registry:
        _import_package_of(name)
    spec = gymnasium.registry.get(name)
    if spec is None or has_moved(spec):
        raise UnknownEnv(_unknown_message(name, module))
    return spec


def _import_package_of(id: str) -> None:
    """Import the package that registers an id: the one of its family, else all that register environments.

    Raises:
        MissingPackage: its family is not installed.
    """
    family = family_of(id)
    if family is None or not family.module:
        import_registrars()
    elif family.installed:
        _register(family.module)
    else:
        raise _missing_module_error(id, family.module, family.install_line)


def _missing_module_error(
    id: str,
    module: str | None,
    remedy: str,
) -> MissingPackage:
    return MissingPackage(
        f"'{id}' needs the Python module '{module}', which is not installed; install it: {remedy}"
    )


@cache
def import_registrars() -> None:
    """Import the installed packages that register environments.

    Gymnasium no longer does this. A warning names a package that cannot be imported.
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
    """Return a registry's entry with other arguments.

    Raises:
        UsageError: the environment does not take an argument of this name, or the time limit is not a number of steps.
    """
    remaining = dict(arguments)
    new_spec = copy.copy(spec)
    if LIMIT in remaining:
        new_spec.max_episode_steps = _limit_option(remaining.pop(LIMIT), spec.id)
    if remaining:
        entry = spec.entry_point or spec.vector_entry_point
        check_arguments(
            load_env_creator(entry) if isinstance(entry, str) else entry, spec.id, remaining
        )
    new_spec.kwargs = {**spec.kwargs, **remaining}
    return new_spec


def _limit_option(steps: object, id: str) -> int | None:
    """Return the time limit of an argument; None for -1, which Gymnasium uses for no limit."""
    if type(steps) is not int or (steps < 1 and steps != -1):  # a bool is an int to isinstance
        raise UsageError(
            f"'{id}': {LIMIT} is {steps!r}; give a whole number from 1 on, or -1 for no time limit"
        )
    return None if steps == -1 else steps


def _register(module: str) -> None:
    """Import a module that registers environments; MinAtar registers its own only when asked, and once."""
    with pybullet.silence_stdout():  # PyBullet prints its build time
        imported = import_module(module)
    if module == crafter.MODULE:
        crafter.register()
    if module == "minatar.gym" and "MinAtar/Breakout-v1" not in gymnasium.registry:
        imported.register_envs()


def _unknown_message(id: str, module: str) -> str:
    """Return the message about an unknown id: it suggests other versions, else similar names, else names the namespace.

    `module` is the module in the id that should register it, or "".
    """
    known = {name for name, spec in gymnasium.registry.items() if not has_moved(spec)}
    try:
        namespace, name, _ = parse_env_id(id)
    except gymnasium.error.Error:
        return f"'{id}' is not an environment id; one looks like 'CartPole-v1' or 'ALE/Pong-v5'"
    versions = sorted(
        known_id
        for known_id in known
        if (gymnasium.registry[known_id].namespace, gymnasium.registry[known_id].name)
        == (namespace, name)
    )
    if versions:
        return f"unknown environment '{id}'; there is {' and '.join(map(repr, versions))}"
    if suggestion := _current_atari_id(name):
        return f"unknown environment '{id}'{suggestion}"
    namespaces = {gymnasium.registry[known_id].namespace for known_id in known}
    hint = did_you_mean(id, known)
    if namespace not in namespaces and not hint:
        hint = f": no installed package provides the namespace '{namespace}'"
    advice = "" if module else f" (if a module of yours registers it, write module:{id})"
    return f"unknown environment '{id}'{hint}{advice}"


def _current_atari_id(name: str) -> str:
    """Return the end of a message with the current id of an older Atari id such as PongNoFrameskip-v4; or ""."""
    id = f"ALE/{_OLDER.sub('', name)}-v5"
    family = family_of(id)
    if family is None:
        return ""
    return f"; there is '{id}'" + (
        "" if family.installed else f"; install it: {family.install_line}"
    )


def has_moved(spec: EnvSpec) -> bool:
    """Return whether an id only says that its environment has moved, as those of MuJoCo's v2 and v3 do."""
    return getattr(spec.entry_point, "__name__", "") == "_raise_mujoco_py_error"
