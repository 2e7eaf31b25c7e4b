"""The provider of worlds with many agents: `pettingzoo/mpe2.simple_spread_v3`, `pettingzoo/classic.connect_four`.

After the slash comes a module with a function `parallel_env`, or `env` if agents act in turn, as PettingZoo's modules
have. The names of PettingZoo's own modules omit the package. Without a version, an id means the newest one.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from rlplug_core.config.import_string import import_quietly
from rlplug_core.config.module_search import search_working_directory, where_searched
from rlplug_core.conflicts import explain_import
from rlplug_core.errors import MissingPackage, UnknownEnv, UsageError, did_you_mean, plain
from rlplug_core.plugins.user_envs import check_arguments
from rlplug_core.protocols import Env
from rlplug_envs.agents import Agents
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families.listed import ListedProvider
from rlplug_envs.games import Game, Parallel, Turns, World

NAMESPACE = "pettingzoo/"
#: Subpackages of PettingZoo.
SUBPACKAGES = ("classic", "butterfly", "sisl", "atari")
#: The command that installs PettingZoo and related environments, and the packages that come with it.
INSTALL = "python -m pip install 'rlplug-envs[multiagent]'"
INSTALLED_PACKAGES = ("pettingzoo", "mpe2", "pygame")


class PettingZoo(ListedProvider):
    """Makes worlds with many agents; `arguments` are keyword arguments of the function that makes one."""

    listed = "pettingzoo"

    def make(self, id: str, num_envs: int) -> Env:
        """Make `num_envs` worlds, each with a row per agent.

        Raises:
            UnknownEnv: the module does not exist. MissingPackage: a package that it needs is not installed.
            UsageError: it takes no such argument. BadEnv: agents have different spaces.
        """
        make = maker(id, self.arguments)
        return Agents(
            make, num_envs, id, inexactness(id, json.dumps(self.arguments, sort_keys=True))
        )

    def make_shown(self, id: str, render_mode: str) -> Env:
        """Return one world to be watched, made with `render_mode`."""
        return Agents(
            maker(id, {**self.arguments, "render_mode": render_mode}), 1, id, "it is only watched"
        )


@cache
def inexactness(id: str, arguments: str) -> str:
    """Return why the state of this world cannot be captured; tested once per process."""
    make = maker(id, json.loads(arguments))
    return self_test(lambda: Agents(make, 1, id, ""))


def maker(id: str, arguments: Mapping[str, object]) -> Callable[[], Game]:
    """Return a function that makes one world."""
    module = find_module(id)
    parallel = getattr(module, "parallel_env", None)
    create = parallel or getattr(module, "env", None)
    if create is None:
        raise UnknownEnv(
            f"'{id}': the module {module.__name__} has neither 'parallel_env' nor 'env'"
        )
    check_arguments(create, id, arguments)
    arguments = {**_rom_argument(id, module), **arguments}
    return partial(_make_world, create, Parallel if parallel else Turns, id, dict(arguments))


def _rom_argument(id: str, module: ModuleType) -> dict[str, object]:
    """Return the argument that gives worlds of PettingZoo's Atari the ROMs in the package ale-py.

    Raises:
        MissingPackage: ale-py is not installed.
    """
    if not module.__name__.startswith("pettingzoo.atari."):
        return {}
    if find_spec("ale_py") is None:
        raise MissingPackage(
            f"'{id}' needs the ROMs in the package ale-py; install it: python -m pip install ale-py"
        )
    return {
        "auto_rom_install_path": str(Path(str(import_module("ale_py").__file__)).parent / "roms")
    }


def _make_world(
    create: Callable[..., World],
    kind: Callable[[World], Game],
    id: str,
    arguments: dict[str, object],
) -> Game:
    try:
        return kind(create(**arguments))
    except ModuleNotFoundError as error:
        raise _missing_package(id, error) from error
    except TypeError as error:
        if not arguments:
            raise
        raise UsageError(f"'{id}' cannot be made with {', '.join(arguments)}: {error}") from error


def find_module(id: str) -> ModuleType:
    """Return the module of an id; the newest version if the id has none.

    Raises:
        UnknownEnv: there is none. MissingPackage: its package, or one that it needs, is not installed.
    """
    package_name, _, name = id.removeprefix(NAMESPACE).rpartition(".")
    if package_name.partition(".")[0] in SUBPACKAGES:
        package_name = f"pettingzoo.{package_name}"
    search_working_directory(package_name or name)
    if not package_name:
        return _user_module(id, name)
    try:
        package = import_module(package_name)
        known = [module.name for module in iter_modules(getattr(package, "__path__", ()))]
        versions = _versions(known, name)
        if versions or name in known or find_spec(f"{package_name}.{name}"):
            with warnings.catch_warnings():
                # PettingZoo warns about imports outside of its registry.
                warnings.simplefilter("ignore", DeprecationWarning)
                return import_quietly(f"{package_name}.{versions[-1] if versions else name}")
    except ImportError as error:
        raise _missing_package(id, error) from error
    available = _versions(known, re.sub(r"_v\d+$", "", name))
    hint = f"; there is '{available[-1]}'" if available else did_you_mean(name, known)
    raise UnknownEnv(f"no environment '{id}': {package_name} has no '{name}'{hint}")


def _versions(modules: Iterable[str], name: str) -> list[str]:
    """Return the modules that are versions of `name`, such as `chess_v6` of `chess`; the newest is the last."""
    matching = [module for module in modules if re.fullmatch(re.escape(name) + r"_v\d+", module)]
    return sorted(matching, key=lambda module: int(module.rpartition("_v")[2]))


def _user_module(id: str, name: str) -> ModuleType:
    """Return a user's module outside any package."""
    if not name.isidentifier() or name in SUBPACKAGES or not find_spec(name):
        raise UnknownEnv(
            f"'{id}' names no module; write one such as {NAMESPACE}mpe2.simple_spread_v3"
        )
    try:
        return import_quietly(name)
    except ImportError as error:
        raise _missing_package(id, error) from error


def _missing_package(id: str, error: ImportError) -> MissingPackage:
    if not isinstance(error, ModuleNotFoundError):
        package_name = id.removeprefix(NAMESPACE).rpartition(".")[0]
        reason = explain_import(error, package_name)
        return MissingPackage(f"'{id}' cannot be imported: {plain(str(error))}{reason}")
    module = str(error.name).partition(".")[0]
    message = f"'{id}' needs the Python module '{error.name}', which is not installed"
    if (
        module in re.split("[/.]", id)[1:] and module not in INSTALLED_PACKAGES
    ):  # a user's own module
        return MissingPackage(message + where_searched())
    # Card games also need rlcard.
    remedy = INSTALL if module in INSTALLED_PACKAGES else f"python -m pip install {module}"
    return MissingPackage(f"{message}; install it: {remedy}")
