"""The name by which another process imports a class or a function passed in Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from rlplug_core.config.import_string import FROM_FILE, absolute, has_guard
from rlplug_core.config.schema import flat
from rlplug_core.errors import UsageError

#: Why no name rebuilds an object.
UNNAMED = "an object of this process, which no name rebuilds"
#: The last parts of options that name a function or a class: of a network or a memory.
NAMED = ("factory", "encoder", "memory")


def with_names(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the options with each function, such as `net.factory`, replaced by its import path.

    Raises:
        UsageError: no import path leads to the function.
    """
    given = {
        name: value
        for name, value in flat(values).items()
        if name.rpartition(".")[2] in NAMED and callable(value)
    }
    return (
        {**flat(values), **{name: _name_of(name, code) for name, code in given.items()}}
        if given
        else dict(values)
    )


def _name_of(option: str, code: object) -> str:
    name, unnamed = import_path(code)
    if unnamed:
        raise UsageError(
            f"{option}: {name} is {unnamed}, and a run records its name; put it in a file, ./net.py:make"
        )
    return name


def import_path(code: object) -> tuple[str, str]:
    """Return the import path of a class or a function; else its own name, and the reason why it has no path."""
    module = getattr(code, "__module__", "")
    name = getattr(code, "__qualname__", type(code).__qualname__)
    short = name.rpartition(".")[2].strip("<>")
    if "<lambda>" in name:
        return short, "a lambda, which no other process can import"
    if not isinstance(code, type | FunctionType):
        return short, UNNAMED
    if not name.isidentifier():
        return short, "made inside a function or a class, where no other process can import it"
    if module == "__main__":
        return _in_script(sys.modules[module], name)
    if module.startswith(FROM_FILE):
        return f"{sys.modules[module].__file__}:{name}", ""
    if getattr(sys.modules.get(module), name, None) is not code:
        return short, f"hidden: {module} has another '{name}'"
    return f"{module}:{name}", ""


def _in_script(script: ModuleType, name: str) -> tuple[str, str]:
    """Return the import path of code in the running script: its file, if importing it does not run it again."""
    file = getattr(script, "__file__", None)
    if file is None or not Path(file).is_file():
        return name, "defined in a session, which has no file"
    if not has_guard(Path(file)):
        return (
            name,
            f"defined in a script that trains when it is imported; put `if __name__ == '__main__':` in {file}",
        )
    if script.__spec__ is not None:  # python -m package.module
        return f"{script.__spec__.name}:{name}", ""
    return absolute(f"{Path(file).resolve()}:{name}"), ""
