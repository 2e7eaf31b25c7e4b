"""Checks of what importing a plugin brings along, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlplug_core.errors import plain
from rlplug_core.plugins import index
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.subject import Subject

#: What a top-level package must leave alone, so that commands which only look at plugins stay fast.
HEAVY = ("torch", "gymnasium", "mlflow")

_SCRIPT = """
import importlib, json, pathlib, sys
report, top, module, *heavy = sys.argv[1:]
importlib.import_module(top)
pathlib.Path(report).write_text(json.dumps(sorted(set(heavy) & set(sys.modules))))
importlib.import_module(module)
"""


@dataclass(frozen=True)
class Imported:
    """The modules that the top-level package imports, and the output until the algorithm's module was imported."""

    heavy: tuple[str, ...]
    printed: str


def light(subject: Subject) -> None:
    """Importing the top-level package brings along neither torch nor gymnasium nor MLflow."""
    module = _module(subject)
    top = module.partition(".")[0]
    if index.package_root(top) is None:
        raise Skipped(f"'{top}' is a single module, not a package")
    if heavy := subject.once("imported", lambda: _imported(module)).heavy:
        raise Failed(f"importing '{top}' imports {', '.join(heavy)}; do so in the modules that need them")


def quiet(subject: Subject) -> None:
    """Importing the package and the algorithm's module prints nothing."""
    module = _module(subject)
    printed = subject.once("imported", lambda: _imported(module)).printed
    if printed:
        raise Failed(f"it prints when it is imported: {plain(printed, 80)!r}; stdout may be someone's JSON")


def _module(subject: Subject) -> str:
    if subject.record is None and subject.name.rpartition(":")[0].endswith(".py"):
        raise Skipped("a file is not imported by name")
    return str(subject.cls.__module__)


def _imported(module: str) -> Imported:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", _SCRIPT, str(report), module.partition(".")[0], module, *HEAVY]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
        if done.returncode:
            raise Failed(f"importing '{module}' fails in a fresh process: {plain(done.stderr[-200:])}")
        return Imported(tuple(json.loads(report.read_text())), done.stdout)


def environment() -> dict[str, str]:
    """This process's environment, for a Python that finds what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
