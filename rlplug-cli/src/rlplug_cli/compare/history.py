"""The history of a run as a comparison reads it: its options, how it stands, its curves and its final scores."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_cli.compare.statistics import Floats
from rlplug_core.errors import BadFile, UsageError
from rlplug_core.runs.curves import KINDS, Curve, curves_of
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import Record, read

#: What an evaluation is judged by, and what puts curves over time and updates.
RETURN, SECONDS, UPDATES = "eval/return_mean", "perf/wall_s", "perf/updates"
#: The metric that an axis goes by; none for env steps themselves.
AXES = {"steps": "", "seconds": SECONDS, "updates": UPDATES}


@dataclass(frozen=True, eq=False)
class History:
    """One run, read once; `env` is its environment's name, of a file that was moved the newest."""

    path: Path
    config: dict[str, Any]
    env: str
    curves: dict[str, Curve]
    ends: tuple[Record, ...]

    @property
    def seed(self) -> int:
        return int(self.config["options"]["seed"])

    @property
    def finished(self) -> bool:
        """Return whether the run has said last that it reached its end."""
        return bool(self.ends) and self.ends[-1].kind == "end" and self.ends[-1].data["status"] == "finished"

    @cached_property
    def scores(self) -> dict[str, float]:
        """The final evaluation's mean return, of the `last` weights and of the `best` checkpoint, where there is one.

        A run whose final evaluation left out its last weights is judged by its last evaluation in training. One that
        is not finished has no scores, though it may have had a final evaluation before it went on.
        """
        if not self.finished:
            return {}
        found = {}
        if RETURN in self.curves:
            found["last"] = float(self.curves[RETURN].values[-1])
        for record in self.ends:
            if record.kind == "final_eval":
                kind = str(record.data["checkpoint"]).rpartition("-")[0]
                found["best" if kind == "best" else "last"] = float(record.data["return_mean"])
                if "last_return_mean" in record.data:
                    found["last"] = float(record.data["last_return_mean"])
        return found

    def points(self, metric: str, axis: str) -> tuple[Floats, Floats]:
        """A metric over `steps`, `seconds` or `updates`: two arrays `[T]`; empty where it was never recorded."""
        curve, other = self.curves.get(metric), self.curves.get(AXES[axis])
        if curve is None or (other is None and axis != "steps"):
            return np.empty(0), np.empty(0)
        steps = curve.steps.astype(np.float64)
        return (steps if other is None else np.interp(steps, other.steps, other.values)), curve.values


def history(path: Path, metrics: Collection[str]) -> History:
    """Read a run's configuration and of its journal what `metrics` and final scores need.

    Raises:
        UsageError: the run's configuration cannot be read.
    """
    try:
        config = RunDirectory(path).config
    except BadFile as error:
        raise UsageError(f"{error}; or leave this run out") from error
    journal = path / "journal.jsonl"
    curved = KINDS if any(not name.startswith("eval/") for name in metrics) else ("evaluation",)
    kinds = (*curved, "start", "final_eval", "end")
    records = list(read(journal, kinds=kinds)) if journal.exists() else []
    ends = tuple(record for record in records if record.kind not in KINDS)
    curves = curves_of(records, tuple(dict.fromkeys((RETURN, *metrics))))
    return History(path, config, str(config["env"]), curves, ends)
