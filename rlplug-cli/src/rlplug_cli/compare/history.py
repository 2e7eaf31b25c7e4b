"""The history of a run as a comparison reads it: its options, how it stands, its curves and its final scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
from rlplug_core.runs.listing import extensions

#: What an evaluation is judged by, and what puts curves over time and updates.
RETURN = "eval/return_mean"
SECONDS = "perf/wall_s"
UPDATES = "perf/updates"
#: The metric that an axis goes by; none for env steps themselves.
AXES = {"steps": "", "seconds": SECONDS, "updates": UPDATES}
#: What says among a run's options how it went on beyond its first total.
EXTENDED = "extended"


@dataclass(frozen=True, eq=False)
class History:
    """One run, read once; `env` and `algorithm` are their names, of a file that was moved the newest."""

    path: Path
    config: dict[str, Any]
    env: str
    algorithm: str
    curves: dict[str, Curve]
    ends: tuple[Record, ...]

    @property
    def seed(self) -> int:
        return int(self.config["options"]["seed"])

    @cached_property
    def options(self) -> dict[str, Any]:
        """Its options, with the total that it was given last and how it came to it."""
        first = int(self.config["options"].get("total_timesteps") or 0)
        total, how = extended(first, [one.data for one in self.ends if one.kind == "start"])
        return {**self.config["options"], "total_timesteps": total, EXTENDED: how}

    @property
    def finished(self) -> bool:
        """Return whether the run has said last that it reached its end."""
        return (
            bool(self.ends)
            and self.ends[-1].kind == "end"
            and self.ends[-1].data["status"] == "finished"
        )

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
        curve = self.curves.get(metric)
        other = self.curves.get(AXES[axis])
        if curve is None or (other is None and axis != "steps"):
            return np.empty(0), np.empty(0)
        steps = curve.steps.astype(np.float64)
        return (
            steps if other is None else np.interp(steps, other.steps, other.values)
        ), curve.values


def extended(first: int, starts: Iterable[Mapping[str, Any]]) -> tuple[int, str]:
    """The total that a run's processes ended up with, and how it came to it, or `none`.

    That is `2000:5000` where schedules stay those of the first total, and `2000:5000:rescale` where they were
    stretched.
    """
    total = first
    moves = list[tuple[int, int, bool]]()
    for limit, stretched in extensions(first, starts):
        # Without a stretch in either, two moves are one.
        begin = moves.pop()[0] if moves and not (moves[-1][2] or stretched) else total
        moves += [(begin, limit, stretched)] if limit != begin else []
        total = limit
    said = [f"{begin}:{end}{':rescale' * stretched}" for begin, end, stretched in moves]
    return total, ",".join(said) or "none"


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
    env = str(config["env"])
    algorithm = str(config["algorithm"])
    return History(path, config, env=env, algorithm=algorithm, curves=curves, ends=ends)
