"""The progress of a run, read from its journal; each call reads only the new records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from rlplug_core.runs import JournalRecord, RunDirectory, tail_journal, valid_records


@dataclass
class RunProgress:
    """The progress of one run.

    Attributes:
        total: env steps that the run will take; only `share` and `eta_s` use it.
        steps: env steps so far.
        speed: env steps per second. seconds: the time so far.
        train_return: mean return of the last training episodes.
        finals: mean return of the final evaluation, of the `last` weights and the `best` checkpoint.
        status: `waiting` before the run starts, then as `RunDirectory.status` says.
        error: the last error in the journal, or "".
    """

    path: Path
    total: int = 1
    steps: int = 0
    speed: float = 0.0
    seconds: float = 0.0
    train_return: float | None = None
    finals: dict[str, float] = field(default_factory=dict)
    status: str = "waiting"
    error: str = ""
    _evaluations: list[JournalRecord] = field(default_factory=list)
    _position: int = 0

    @property
    def evaluations(self) -> dict[int, float]:
        """Return the mean return of every evaluation by its env step, in order."""
        return {record.step: record.data["eval/return_mean"] for record in self._evaluations}

    @property
    def last(self) -> float | None:
        """Return the mean return of the last evaluation."""
        return next(reversed(self.evaluations.values()), None)

    @property
    def best(self) -> float | None:
        """Return the mean return of the best evaluation."""
        values = [value for value in self.evaluations.values() if not math.isnan(value)]
        return max(values, default=None)

    @property
    def share(self) -> float:
        """Return the part of the run that is done, from 0 to 1."""
        return 1.0 if self.status == "finished" else min(1.0, self.steps / self.total)

    @property
    def eta_s(self) -> float:
        """Seconds until the end at the current speed."""
        return (self.total - self.steps) / self.speed if self.speed > 0 else math.inf

    @property
    def is_over(self) -> bool:
        """Return whether an idle run is finished, and its tables and mirrors have everything."""
        return self.status == "finished" and not RunDirectory(self.path).has_pending_hooks()

    def read_new_records(self) -> None:
        """Read the journal's new records."""
        journal = self.path / "journal.jsonl"
        position = self._position
        if journal.exists():
            for record, self._position in tail_journal(journal, position):
                self._read_record(record)

    def _read_record(self, record: JournalRecord) -> None:
        data = record.data
        self.steps = max(self.steps, record.step)
        if record.kind == "metrics":
            self.speed = data.get("perf/env_steps_per_s", self.speed)
            self.seconds = data.get("perf/wall_s", self.seconds)
            self.train_return = data.get("rollout/return_mean", self.train_return)
        elif record.kind == "evaluation":
            self._evaluations.append(record)
        elif record.kind == "final_eval":
            checkpoint = "best" if str(data["checkpoint"]).startswith("best") else "last"
            self.finals[checkpoint] = data["return_mean"]
            if "last_return_mean" in data:
                self.finals["last"] = data["last_return_mean"]
        elif record.kind == "start":
            self.steps = record.step
            self.status = "running"
            # A resumed run repeats the steps after its checkpoint, with their evaluations.
            self._evaluations = valid_records([*self._evaluations, record])[:-1]
        elif record.kind == "end":
            self.status = data["status"]
        elif record.kind == "error":
            self.error = f"{data['type']}: {data['message']}"

    def read_status(self) -> str:
        """Return the status of a run that no process of this sweep is working on; `waiting` before it started."""
        if not (self.path / "config.json").is_file():
            self.status = "waiting"
            return self.status
        self.read_new_records()
        self.status = RunDirectory(self.path).status()
        return self.status
