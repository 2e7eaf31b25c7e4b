"""Import the target of `module:Name` or `./file.py:Name`; every failure becomes one sentence."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from rlplug_core.config.module_search import search_folder, search_working_directory, where_searched
from rlplug_core.errors import MissingPackage, PluginError, UsageError, did_you_mean, plain

if TYPE_CHECKING:
    from importlib.abc import Loader

#: Prefix of the names of modules loaded from a file; the rest encodes its path.
FROM_FILE = "rlplug_file_"
#: Packages that are skipped when an error's place is reported.
FIRST_PARTY = ("rlplug_core", "rlplug_algos", "rlplug_envs", "rlplug_cli")


def load_target(target: str, noun: str) -> Any:
    """Import the object `module:Name` or `./file.py:Name`.

    Raises:
        UsageError: the file, the module or the name does not exist. PluginError: the code raised while it was imported.
    """
    location, _, attribute = target.rpartition(":")
    if not location or not attribute.isidentifier():
        raise UsageError(f"'{target}' names no {noun}; write ./file.py:Name or module:Name")
    module = (
        _from_file(Path(location), target)
        if location.endswith(".py")
        else _from_module(location, target)
    )
    return attribute_of(module, attribute, f"'{target}'")


def is_target(name: str) -> bool:
    """Return whether a user named a file or a module, not the id of an installed plugin."""
    return ":" in name or name.endswith(".py")


def source_file(name: str) -> Path | None:
    """Return the file of a `./file.py:Name`, which a run copies; None for other names."""
    path = name.rpartition(":")[0]
    return Path(path).resolve() if path.endswith(".py") else None


def absolute(name: str) -> str:
    """Return a `./file.py:Name` with an absolute path, for workers and a resume; other names unchanged."""
    path = source_file(name)
    return name if path is None else f"{path}:{name.rpartition(':')[2]}"


def import_quietly(module: str) -> ModuleType:
    """Import a module with its output sent to stderr, because stdout may be JSON."""
    with contextlib.redirect_stdout(sys.stderr):
        return importlib.import_module(module)


def _from_module(module: str, target: str) -> ModuleType:
    if not all(name.isidentifier() for name in module.split(".")):
        raise UsageError(
            f"'{target}': '{module}' is not a module's name; write ./file.py:Name or module:Name"
        )
    search_working_directory(module)
    try:
        return import_quietly(module)
    # A foreign module may raise anything while it is imported.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            raise UsageError(
                f"'{target}': there is no module '{missing}'{where_searched()}, "
                "or give a path: ./file.py:Name"
            ) from error
        from rlplug_core.conflicts import explain_import  # errors are rare

        raise _load_error(f"'{target}'", error, explain_import(error, module)) from error


def _from_file(path: Path, target: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"'{target}': there is no file {path}")
    resolved = path.resolve()
    name = f"{FROM_FILE}{path.stem}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{target}': {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    search_folder(resolved.parent)
    _execute(spec.loader, module, target)
    return module


def _execute(loader: Loader, module: ModuleType, target: str) -> None:
    name = module.__name__
    sys.modules[name] = module  # dataclasses look their module up there while it is executed
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # A user's file may raise anything while it is executed.
        del sys.modules[name]
        raise _load_error(f"'{target}'", error) from error


def attribute_of(module: ModuleType, attribute: str, subject: str) -> object:
    """Return a dotted attribute of a module; `subject` is its name in messages.

    Raises:
        PluginError: it does not exist or cannot be loaded. MissingPackage: it needs a package that is not installed.
    """
    value: object = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise PluginError(
                f"{subject} cannot be loaded: {_display_name(module)} has no '{attribute}'"
                f"{did_you_mean(attribute, _definitions(module))}"
            ) from error
        except Exception as error:  # `__getattr__` of a foreign module may raise anything
            raise _load_error(subject, error) from error
    return value


def _load_error(
    subject: str,
    error: BaseException,
    cause: str = "",
) -> PluginError:
    """Return the error about code that raised `error` while it was imported."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return MissingPackage(
            f"{subject} needs the module '{error.name}', which is not installed{where_searched()}"
        )
    return PluginError(
        f"{subject} cannot be loaded: {describe(error)}{cause}; --traceback shows where"
    )


def _display_name(module: ModuleType) -> str:
    """Return the name of a module for messages; for a file, the name of the file."""
    return (
        Path(str(module.__file__)).name
        if module.__name__.startswith(FROM_FILE)
        else module.__name__
    )


def _definitions(module: ModuleType) -> list[str]:
    """Return the names of the classes and functions that a module defines."""
    members = vars(module).items()
    kinds = (type, FunctionType)
    return [
        name
        for name, value in members
        if isinstance(value, kinds) and value.__module__ == module.__name__
    ]


def has_guard(path: Path) -> bool:
    """Return whether a script asks whether it is `__main__`, so that it can be imported without being run."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(
        isinstance(node, ast.Name) and node.id == "__name__"
        for test in tests
        for node in ast.walk(test)
    )


def place_of(error: BaseException) -> str:
    """Return the place of an exception in the user's own file, as `" (mine.py:55, in loss)"`, or nothing."""
    import sysconfig  # imported here, because it is slow and errors are rare

    installed = [
        Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        file = Path(code.co_filename)
        is_first_party = name.partition(".")[0] in FIRST_PARTY
        if (
            not is_first_party
            and file.is_file()
            and not any(file.is_relative_to(prefix) for prefix in installed)
        ):
            place = f" ({file.name}:{traceback.tb_lineno}, in {code.co_name})"
        traceback = traceback.tb_next
    return place


def message_of(error: BaseException) -> str:
    """Return the message of an exception, or a sentence if the message cannot be shown."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a foreign exception runs foreign code for its message
        return "its message cannot be shown"


def describe(error: BaseException) -> str:
    """Return an exception as part of a sentence: its class and its message."""
    message = plain(message_of(error))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
