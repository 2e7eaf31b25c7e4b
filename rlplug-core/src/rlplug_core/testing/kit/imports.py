"""Checks of the imports of a plugin, each in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rlplug_core.errors import plain
from rlplug_core.plugins import index
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.process import in_fresh_process
from rlplug_core.testing.kit.subject import Subject

#: Modules that a top-level package must not import, so commands that only list plugins stay fast.
HEAVY = ("torch", "gymnasium", "mlflow")

_SCRIPT = """
import importlib, json, pathlib, sys
report, top, *heavy = sys.argv[1:]
importlib.import_module(top)
pathlib.Path(report).write_text(json.dumps(sorted(set(heavy) & set(sys.modules))))
"""


def light(subject: Subject) -> None:
    """Importing the top-level package imports neither torch nor gymnasium nor MLflow."""
    top = _module(subject).partition(".")[0]
    if index.package_root(top) is None:
        raise Skipped(f"'{top}' is a single module, not a package")
    if heavy := _heavy_imports(top):
        raise Failed(
            f"importing '{top}' imports {', '.join(heavy)}; import them in the modules that need them"
        )


def quiet(subject: Subject) -> None:
    """Importing the package and the algorithm's module prints nothing."""
    module = _module(subject)
    result = in_fresh_process(import_all, [module.partition(".")[0], module])
    if result.code:
        raise _import_failure(module, result.error)
    if result.printed:
        raise Failed(
            f"it prints when it is imported: {plain(result.printed, 80)!r}; stdout may contain JSON of a command"
        )


def import_all(modules: Sequence[str]) -> None:
    """Import modules in a new process."""
    for module in modules:
        import_module(module)


def _module(subject: Subject) -> str:
    if subject.record is None and subject.name.rpartition(":")[0].endswith(".py"):
        raise Skipped("a file is not imported by name")
    return str(subject.cls.__module__)


def _heavy_imports(top: str) -> list[str]:
    """Return the modules of `HEAVY` that a new interpreter has loaded after importing `top`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", _SCRIPT, str(report), top, *HEAVY]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        finished = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False
        )
        if finished.returncode:
            raise _import_failure(top, finished.stderr)
        return json.loads(report.read_text())


def _import_failure(module: str, error: str) -> Failed:
    return Failed(f"importing '{module}' fails in a fresh process: {plain(error[-200:])}")
