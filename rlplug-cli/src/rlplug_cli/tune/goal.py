"""The goal of a study, and a trial of it while it runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlplug_cli.sweep.grid import digest
from rlplug_cli.sweep.progress import Standing
from rlplug_cli.sweep.task_pool import Entry
from rlplug_core.config.options import Range
from rlplug_core.config.schema import Option

if TYPE_CHECKING:
    from optuna.trial import Trial

#: What a trial is judged by, of each of its runs.
OBJECTIVES: dict[str, Callable[[Standing], float | None]] = {
    "last": lambda run: run.finals.get("last", run.last),
    "best": lambda run: run.finals.get("best", run.best),
    "mean": lambda run: statistics.fmean(run.evaluations.values()) if run.evaluations else None,
}


@dataclass(frozen=True)
class Goal:
    """The objective of a study, and how to look for it.

    Attributes:
        options: all that the algorithm and every run have.
        words: the options that all trials have in common, as typed; `fixed` are their values, and `values` these and
            their presets.
        seeds: those of every trial.
        trials: how many there are to be in all.
        objective: one of `OBJECTIVES`.
        cores: how many a run takes.
    """

    algorithm: str
    env: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    fixed: Mapping[str, object]
    values: Mapping[str, object]
    space: Mapping[str, Range]
    seeds: tuple[int, ...]
    trials: int
    objective: str
    cores: int

    @property
    def digest(self) -> str:
        """A few characters that stand for what is searched, in whatever order it was typed and however many trials."""
        fixed = json.dumps(self.fixed, sort_keys=True, default=str)
        return digest(
            [
                self.algorithm,
                self.env,
                fixed,
                *self._space,
                self.objective,
                *map(str, sorted(self.seeds)),
            ]
        )

    @property
    def former(self) -> str:
        """The same as older studies have it, for which another order of the words was another search."""
        return digest(
            [
                self.algorithm,
                self.env,
                *self.words,
                *self._space,
                self.objective,
                *map(str, self.seeds),
            ]
        )

    @property
    def _space(self) -> list[str]:
        return [str(one) for one in sorted(self.space.items())]


@dataclass
class Running:
    """A trial and its runs, one per seed."""

    trial: Trial
    entries: list[Entry]
    reported: set[int] = field(default_factory=set)
    pruned: bool = False


def to_do(entry: Entry) -> bool:
    """Return whether a run is to be started: it is not at work, not at its end, and has not failed before our eyes."""
    return (
        entry.job is None
        and entry.standing.status != "finished"
        and not entry.starts
        and not entry.stopped
    )


def gave_up(entry: Entry) -> bool:
    """Return whether a run has ended in this process's time, and not at its end."""
    return entry.job is None and entry.starts > 0 and entry.standing.status != "finished"
