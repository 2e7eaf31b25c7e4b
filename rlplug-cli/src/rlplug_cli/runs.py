"""Run directories as the command line sees them: found by path or name, and summed up from their journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.journal import Record, read


def located(text: str, out: Path = Path("runs")) -> Path:
    """The run directory that a path or a name under `out` means.

    Raises:
        UsageError: there is none.
    """
    for path in (Path(text), out / text):
        if (path / "config.json").is_file():
            return path
    near = did_you_mean(Path(text).name, [path.name for path in directories(out)])
    raise UsageError(f"no run at {text}{near} ('rlplug runs' lists the runs in {out}/)")


def directories(out: Path) -> list[Path]:
    """The run directories in `out`, oldest first."""
    found = [path.parent for path in out.glob("*/config.json")] if out.is_dir() else []
    return sorted(found, key=lambda path: ((path / "config.json").stat().st_mtime_ns, path.name))


def records(run: Path) -> list[Record]:
    """A run's journal; empty for a run that was killed before its first record."""
    path = run / "journal.jsonl"
    return list(read(path)) if path.exists() else []


def verdict(run: Path) -> dict[str, Any] | None:
    """The last verdict of a run."""
    found = [record.data for record in records(run) if record.kind == "verdict"]
    return found[-1] if found else None


def ended(run: Path) -> str:
    """Why a run ended before its total, in words; empty where it did not."""
    ends = [record.data for record in records(run) if record.kind == "end"]
    return str(ends[-1].get("reason", "")) if ends else ""


def summary(run: Path) -> dict[str, Any]:
    """One run in a few words: status, steps and best evaluation, from its configuration and its journal."""
    from rlplug_core.rundir import RunDirectory

    config = json.loads((run / "config.json").read_bytes())
    journal = records(run)
    evaluations = [record.data["eval/return_mean"] for record in journal if record.kind == "evaluation"]
    return {
        "name": run.name,
        "path": str(run),
        "status": RunDirectory(run).status(),
        "algorithm": config["algorithm"],
        "env": config["env"],
        "seed": config["options"].get("seed"),
        "steps": max((record.step for record in journal), default=0),
        "total_steps": config["options"].get("total_steps"),
        "best": max(evaluations, default=None),
        "verdict": next((record.data for record in reversed(journal) if record.kind == "verdict"), None),
        "group": config["group"],
    }


def shortened(path: Path) -> str:
    """A path as a user in this directory would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
