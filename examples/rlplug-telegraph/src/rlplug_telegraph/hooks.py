"""Appends the events of every run to the file that `RLPLUG_TELEGRAPH` names, one JSON object per line.

    {"event": "start", "run": "a2c-CartPole-v1-…", "time": 1767225600.0, "algorithm": "a2c", "env": "CartPole-v1"}
    {"event": "log", "run": "…", "time": …, "step": 1000, "metrics": {"rollout/return_mean": 21.4, …}}
    {"event": "checkpoint", "run": "…", "time": …, "path": "…/checkpoints/step-000000010000", "reason": "periodic"}
    {"event": "error", "run": "…", "time": …, "kind": "BadEnv", "message": "…"}
    {"event": "end", "run": "…", "time": …, "status": "finished"}

Every event also has the `directory` of the run, because trials of different studies have the same names. Without the
variable nothing is written. NaN and infinities, which JSON does not have, are written as null.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_core.plugins.hook_specs import hookimpl

if TYPE_CHECKING:
    from rlplug_core import Run

VARIABLE = "RLPLUG_TELEGRAPH"


@hookimpl
def rlplug_run_start(run: Run) -> None:
    post(run, "start", {"algorithm": run.config["algorithm"], "env": run.config["env"]})


@hookimpl
def rlplug_run_log(run: Run, step: int, metrics: Mapping[str, float]) -> None:
    finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    post(run, "log", {"step": step, "metrics": finite})


@hookimpl
def rlplug_run_checkpoint(run: Run, path: Path, reason: str) -> None:
    post(run, "checkpoint", {"path": str(path), "reason": reason})


@hookimpl
def rlplug_run_error(run: Run, error: BaseException) -> None:
    post(run, "error", {"kind": type(error).__name__, "message": str(error)})


@hookimpl
def rlplug_run_end(run: Run, status: str) -> None:
    post(run, "end", {"status": status})


@hookimpl
def rlplug_doctor(report: list[str]) -> None:
    place = os.environ.get(VARIABLE)
    report.append(
        f"telegraph: events go to {place}"
        if place
        else f"telegraph: set {VARIABLE} to a file to get events"
    )


def post(run: Run, event: str, data: Mapping[str, object]) -> None:
    """Append one line with one write, so runs that share a file do not mix their lines."""
    place = os.environ.get(VARIABLE)
    if not place:
        return
    about = {"event": event, "run": run.name, "directory": str(run.path), "time": time.time()}
    line = json.dumps({**about, **data}) + "\n"
    descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
