"""The door of a room: names of its modules that other packages import from the room itself.

The names are in the room's stub, `__init__.pyi`, which type checkers and editors read too. One line a name:
`from MODULE import NAME as NAME`, or `as OTHER_NAME` if the name is unclear outside its module; such a stub lists its
names in `__all__`, too. `Old = New` keeps a former name for one version; using it warns. A module is imported when one
of its names is first imported or used. So a door is fast, but `from ROOM import NAME` loads the module of NAME:
import a name that needs torch inside the function that uses it.

No name equals a module of the room, because importing that module would replace the name.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

Door = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def open_door(room: str) -> Door:
    """Return `__getattr__`, `__dir__` and `__all__` of a package from its stub.

    Args:
        room: the package's `__name__`; the package is being imported.
    """
    package = sys.modules[room]
    origins, renamed = read_stub(Path(package.__file__ or "").with_suffix(".pyi"))

    def load(name: str) -> object:
        if name in renamed:
            new = f"{room}.{renamed[name]}; the next version removes the old name"
            warnings.warn(f"{room}.{name} is now {new}", DeprecationWarning, stacklevel=2)
            return load(renamed[name])
        if name not in origins:
            raise AttributeError(f"module '{room}' has no attribute '{name}'")
        module, inner = origins[name]
        value = getattr(_import(module), inner)
        setattr(package, name, value)
        return value

    def names() -> list[str]:
        special = {name for name in vars(package) if name.startswith("__")}
        return sorted(special | origins.keys())

    return load, names, sorted(origins)


def _import(module: str) -> ModuleType:
    """Import a module; an error names the package with the wrong version, if it is known."""
    try:
        return import_module(module)
    except ImportError as error:
        from rlplug_core.conflicts import explain_import  # slow, and errors are rare

        cause = explain_import(error)
        if not cause:
            raise
        raise ImportError(f"{error}{cause}") from error


def read_stub(stub: Path) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the module and the inner name of each name of a door, and the current name of each former one."""
    origins: dict[str, tuple[str, str]] = {}
    renamed: dict[str, str] = {}
    for line in stub.read_text(encoding="utf-8").splitlines():
        words = line.split()  # faster than a regular expression
        if words[:1] == ["from"]:
            _, module, _, inner, _, name = words
            origins[name] = (module, inner)
        elif len(words) == 3 and words[1] == "=" and words[2] != "[":
            renamed[words[0]] = words[2]
    return origins, renamed
