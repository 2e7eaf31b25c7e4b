"""Run directories for the command line; `rlplug_core.runs.listing` finds and reads them."""

from __future__ import annotations

import os
from pathlib import Path

from rlplug_core.config.import_string import is_target
from rlplug_core.runs import listing
from rlplug_core.runs.listing import OUT, directories, records, summary

__all__ = [
    "directories",
    "end_reason",
    "file_name",
    "final_evaluation",
    "find_run",
    "no_update_note",
    "one_thread",
    "records",
    "short_path",
    "summary",
]


def find_run(text: str, out: Path = OUT) -> Path:
    """Return the run directory that a path or a name under `out` means.

    Raises:
        UsageError: there is none.
    """
    return listing.find(text, out)


def final_evaluation(run: Path) -> dict[str, object] | None:
    """Return the last final evaluation of a run."""
    return listing.final_evaluation(records(run))


def end_reason(run: Path) -> str:
    """Return why a run ended before its total, or "" if it did not."""
    ends = [record.data for record in records(run) if record.kind == "end"]
    return str(ends[-1].get("reason", "")) if ends else ""


def no_update_note(run: Path) -> str:
    """Return a note if a run has made no update, else ""."""
    if not listing.is_untrained(records(run)):
        return ""
    return "no update was made: the run ended before its first batch, so its weights are the initial ones"


def short_path(path: Path) -> str:
    """Return a path as a user in this directory would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def file_name(target: str) -> str:
    """Return the name of an algorithm or environment for a table; that of a file is without its directory."""
    return Path(target).name if is_target(target) else target


def one_thread() -> None:
    """Let NumPy multiply matrices on one thread unless the user set a number; NumPy reads this when it is imported."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
