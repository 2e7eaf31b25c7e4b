"""Final checkpoints of runs."""

from __future__ import annotations

from typing import Any

from rlplug_core.runs.api import Run
from rlplug_core.runs.checkpoint import Checkpoints, read


def final_weights(run: Run) -> Any:
    return Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["learner"]


def final_state(run: Run) -> Any:
    """Return the final checkpoint of a run without its wall time."""
    saved = read(next(run.directory.checkpoints_path.glob("final-*")))[0]
    saved["events"].pop("wall")
    return saved
