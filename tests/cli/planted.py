"""A working directory in which a file lies for every module that any process could import at its start."""

from __future__ import annotations

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

#: Where a planted file says that it ran.
RAN = "planted-files-that-ran"


def plant(place: Path) -> None:
    """Plant a file for every module of the standard library and of every installed distribution."""
    for name in sorted({*sys.stdlib_module_names, *packages_distributions()}):
        if name.isidentifier():
            (place / f"{name}.py").write_text(f"open({str(place / RAN)!r}, 'a').write('{name}\\n')\n")


def ran(place: Path) -> list[str]:
    """The names of the planted files that ran."""
    return (place / RAN).read_text().split() if (place / RAN).exists() else []


def environment() -> dict[str, str]:
    """This process's environment, without what would make Python's path safe by itself."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
