"""Find a name that lets another process import a class or a function that was passed in Python."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FunctionType, ModuleType

from rlplug_core.config.import_string import FROM_FILE, absolute, has_guard

#: Why an object has no import path.
UNNAMED = "an object of this process, which cannot be imported by name"


def import_path(code: object) -> tuple[str, str]:
    """Return the import path of a class or a function and "", or its short name and the reason why it has no path."""
    module = getattr(code, "__module__", "")
    name = getattr(code, "__qualname__", type(code).__qualname__)
    short_name = name.rpartition(".")[2].strip("<>")
    if "<lambda>" in name:
        return short_name, "a lambda, which no other process can import"
    if not isinstance(code, type | FunctionType):
        return short_name, UNNAMED
    if not name.isidentifier():
        return (
            short_name,
            "defined inside a function or a class, where no other process can import it",
        )
    if module == "__main__":
        return _in_script(sys.modules[module], name)
    if module.startswith(FROM_FILE):
        return f"{sys.modules[module].__file__}:{name}", ""
    if getattr(sys.modules.get(module), name, None) is not code:
        return short_name, f"hidden: {module} has another '{name}'"
    return _file_or_module(module, name), ""


def _file_or_module(module: str, name: str) -> str:
    """Return the import path of code in an importable module; for a user's file, `/path/file.py:Name` as in a shell.

    So a class has one name in a notebook, on the command line, in comparisons and in MLflow.
    """
    file = getattr(sys.modules[module], "__file__", None) or ""
    installed = {Path(path) for path in sysconfig.get_paths().values()}
    is_user_file = (
        "." not in module and file.endswith(".py") and not hasattr(sys.modules[module], "__path__")
    )
    if not is_user_file or any(Path(file).is_relative_to(path) for path in installed):
        return f"{module}:{name}"
    return absolute(f"{Path(file).resolve()}:{name}")


def _in_script(script: ModuleType, name: str) -> tuple[str, str]:
    """Return the import path of code in the running script, if an import does not run the script again."""
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
