"""Run directories as the command line sees them; `rlplug_core.runs.listing` finds and reads them."""

from __future__ import annotations

import os
from pathlib import Path

from rlplug_core.config.import_string import is_target
from rlplug_core.runs import listing
from rlplug_core.runs.listing import OUT, directories, records, summary

__all__ = [
    "directories",
    "ended",
    "file_name",
    "final_evaluation",
    "find_run",
    "one_thread",
    "records",
    "short_path",
    "summary",
    "untrained",
]


def find_run(text: str, out: Path = OUT) -> Path:
    """The run directory that a path or a name under `out` means.

    Raises:
        UsageError: there is none.
    """
    return listing.find(text, out)


def final_evaluation(run: Path) -> dict[str, object] | None:
    """The last final evaluation of a run."""
    return listing.final_evaluation(records(run))


def ended(run: Path) -> str:
    """Return why a run ended before its total, in words; empty where it did not."""
    ends = [record.data for record in records(run) if record.kind == "end"]
    return str(ends[-1].get("reason", "")) if ends else ""


def untrained(run: Path) -> str:
    """Return in words that a run has made no update; empty where it has."""
    if not listing.untrained(records(run)):
        return ""
    return "no update was made: the run ended before its first batch was due, and its weights are those it began with"


def short_path(path: Path) -> str:
    """A path as a user in this directory would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def file_name(target: str) -> str:
    """The name of an algorithm or environment for a table: that of a file has not the whole path of it."""
    return Path(target).name if is_target(target) else target


def one_thread() -> None:
    """Let numpy's products use one thread, unless the user says otherwise; read once, when numpy is imported."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
