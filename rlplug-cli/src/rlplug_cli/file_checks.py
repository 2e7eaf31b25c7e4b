"""Checks for names and paths that a file holds, or that may be links that another account planted.

Every command that joins a name from a file to a directory, or writes into a directory that it did not just create,
calls one of these functions first.
"""

from __future__ import annotations

import os
from pathlib import Path

from rlplug_core.config import is_directory, is_regular
from rlplug_core.errors import UsageError

#: Files of a run, sweep or study directory; a run with such a name would replace them.
RESERVED = (
    "checkpoints",
    "compare.html",
    "config.json",
    "history.png",
    "importance.png",
    "journal.jsonl",
    "lock",
    "logs",
    "mlflow.json",
    "mlflow.lock",
    "slurm.json",
    "slurm.sh",
    "sources",
    "study.db",
    "sweep.json",
    "videos",
)


def name_fault(name: str) -> str:
    """Return why `name` cannot be the name of a run directory, or "" if it can."""
    if not name.isprintable():
        return "use printable characters only"
    if not name or Path(name).name != name or name.startswith((".", "-")):
        return "use a name without '/' and without '.' or '-' at its start; --out says where the directory is"
    if name in RESERVED:
        return "rlplug writes a file of this name itself; choose another"
    return ""


def refuse_path(name: str | None) -> None:
    """Refuse a `--name` that cannot be the name of a run directory.

    Raises:
        UsageError: it is a path, a reserved name, or a terminal cannot show it.
    """
    if name is not None and (fault := name_fault(name)):
        raise UsageError(f"--name {name if name.isprintable() else repr(name)}: {fault}")


def refuse_link(path: Path) -> None:
    """Refuse a directory that is a link or a file.

    Raises:
        UsageError: a link or a file has this name.
    """
    if os.path.lexists(path) and not is_directory(path):
        raise UsageError(f"{path} is not a directory of its own (a link or a file); delete it")


def refuse_irregular(path: Path) -> None:
    """Refuse a file that is a link, a pipe or a directory; a missing file passes.

    Raises:
        UsageError: it is one of these.
    """
    if os.path.lexists(path) and not is_regular(path):
        raise UsageError(f"{path} is not a regular file (a link, a pipe or a directory); delete it")
