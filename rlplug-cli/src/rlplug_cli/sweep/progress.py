"""The progress of a run, from its journal alone: read again and again, each time what is new."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import Record, standing, tail


@dataclass
class Standing:
    """The state of one run, as far as it is known; `total` is how many env steps it is to take."""

    path: Path
    total: int
    steps: int = 0
    speed: float = 0.0
    seconds: float = 0.0
    train_return: float | None = None
    finals: dict[str, float] = field(default_factory=dict)
    status: str = "waiting"
    error: str = ""
    _evaluations: list[Record] = field(default_factory=list)
    _position: int = 0

    @property
    def evaluations(self) -> dict[int, float]:
        """The mean return of every evaluation by its env step, in their order."""
        return {record.step: record.data["eval/return_mean"] for record in self._evaluations}

    @property
    def last(self) -> float | None:
        """The mean return of the last evaluation."""
        return next(reversed(self.evaluations.values()), None)

    @property
    def best(self) -> float | None:
        """The mean return of the best evaluation."""
        return max(
            (value for value in self.evaluations.values() if not math.isnan(value)), default=None
        )

    @property
    def share(self) -> float:
        """Return how much of the run is done, from 0 to 1."""
        return 1.0 if self.status == "finished" else min(1.0, self.steps / self.total)

    @property
    def eta_s(self) -> float:
        """Seconds to go at the present speed."""
        return (self.total - self.steps) / self.speed if self.speed > 0 else math.inf

    def look(self) -> bool:
        """Read what the journal has got since the last time; whether there was anything."""
        journal = self.path / "journal.jsonl"
        before = self._position
        if journal.exists():
            for record, self._position in tail(journal, before):
                self._take(record)
        return self._position != before

    def _take(self, record: Record) -> None:
        data = record.data
        self.steps = max(self.steps, record.step)
        if record.kind == "metrics":
            self.speed = data.get("perf/env_steps_per_s", self.speed)
            self.seconds = data.get("perf/wall_s", self.seconds)
            self.train_return = data.get("rollout/return_mean", self.train_return)
        elif record.kind == "evaluation":
            self._evaluations.append(record)
        elif record.kind == "final_eval":
            self.finals["best" if str(data["checkpoint"]).startswith("best") else "last"] = data[
                "return_mean"
            ]
            if "last_return_mean" in data:
                self.finals["last"] = data["last_return_mean"]
        elif record.kind == "start":
            self.steps = record.step
            self.status = "running"
            self._evaluations = standing([*self._evaluations, record])[:-1]
        elif record.kind == "end":
            self.status = data["status"]
        elif record.kind == "error":
            self.error = f"{data['type']}: {data['message']}"

    def settle(self) -> str:
        """Settle how the run stands, no process of this sweep being at it: `missing`, or as its directory says."""
        if not (self.path / "config.json").is_file():
            self.status = "missing"
            return self.status
        self.look()
        self.status = RunDirectory(self.path).status()
        return self.status
