"""Notes about runs, and names and paths as a user types them."""

from __future__ import annotations

from pathlib import Path

from rlplug_core.runs import is_untrained, run_records, shell_word


def end_reason(run: Path) -> str:
    """Return why a run ended before its total, or "" if it did not."""
    ends = [record.data for record in run_records(run, "end")]
    return str(ends[-1].get("reason", "")) if ends else ""


def no_update_note(run: Path) -> str:
    """Return a note if a run has made no update, else ""."""
    if not is_untrained(run):
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
    return Path(target).name if target.rpartition(":")[0].endswith(".py") else target


def export_advice(name: str) -> str:
    """Return what to type instead of a command that works on runs only, for an exported policy."""
    readme = f"{name}/README.md"
    return f"{name} is an exported policy, which {readme} describes; type: rlplug play {shell_word(name)}"
