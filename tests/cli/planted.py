"""A working directory with a file for every module that a process could import at its start."""

from __future__ import annotations

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

#: Planted files write their names into this file when they run.
RAN = "planted-files-that-ran"


def plant(place: Path) -> None:
    """Write a file for every module of the standard library and of every installed distribution."""
    for name in sorted({*sys.stdlib_module_names, *packages_distributions()}):
        if name.isidentifier():
            (place / f"{name}.py").write_text(f"open({str(place / RAN)!r}, 'a').write('{name}\\n')\n")


def ran(place: Path) -> list[str]:
    """Return the names of the planted files that ran."""
    return (place / RAN).read_text().split() if (place / RAN).exists() else []


def environment() -> dict[str, str]:
    """Return this process's environment without the variables that make Python's path safe."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
