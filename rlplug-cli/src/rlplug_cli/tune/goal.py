"""The goal of a study, and its running trials."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlplug_cli.parameters import parse_option
from rlplug_cli.sweep.grid import digest
from rlplug_cli.sweep.progress import RunProgress
from rlplug_cli.sweep.task_pool import Entry
from rlplug_core.config import Option, Range
from rlplug_core.errors import UsageError

if TYPE_CHECKING:
    from optuna.trial import Trial

#: The value of a run, by the name of the objective.
OBJECTIVES: dict[str, Callable[[RunProgress], float | None]] = {
    "last": lambda run: run.finals.get("last", run.last),
    "best": lambda run: run.finals.get("best", run.best),
    "mean": lambda run: statistics.fmean(run.evaluations.values()) if run.evaluations else None,
    "steps_per_second": lambda run: run.steps / run.seconds if run.seconds > 0 else None,
}
#: Other names of objectives.
OBJECTIVE_ALIASES = {"score": "last"}


@dataclass(frozen=True)
class Goal:
    """The objective of a study, and how to search.

    Attributes:
        options: all options of the algorithm and of every run.
        words: the typed options that all trials share.
        fixed: the values of `words`. values: these with presets and defaults.
        seeds: the seeds of every trial.
        trials: the total number of trials.
        objective: a key of `OBJECTIVES`, or several between commas.
        cores: the number of cores that a run needs.
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
    def objectives(self) -> tuple[str, ...]:
        """Return the names of the objectives; the first one decides which trial is the best."""
        return tuple(self.objective.split(","))

    @property
    def digest(self) -> str:
        """Six characters that identify the search, independent of the order of words and the number of trials."""
        fixed = json.dumps(self.fixed, sort_keys=True, default=str)
        seeds = map(str, sorted(self.seeds))
        return digest([self.algorithm, self.env, fixed, *self._space, self.objective, *seeds])

    @property
    def former_digest(self) -> str:
        """Return the digest that older studies have; there the order of the words matters."""
        seeds = map(str, self.seeds)
        words = [self.algorithm, self.env, *self.words, *self._space, self.objective, *seeds]
        return digest(words)

    def with_types(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return option values in their own types; Optuna stores lists as strings, and choices are strings."""
        options = {option.name: option for option in self.options}
        return {
            name: parse_option(options[name], value, self.algorithm)
            if isinstance(value, str)
            else value
            for name, value in values.items()
        }

    @property
    def _space(self) -> list[str]:
        return [str(item) for item in sorted(self.space.items())]


def parse_objectives(text: str) -> str:
    """Return the names in an `--objective`, without aliases, between commas.

    Raises:
        UsageError: a name is unknown or given twice.
    """
    names = [OBJECTIVE_ALIASES.get(name, name) for name in map(str.strip, text.split(","))]
    for name in names:
        if name not in OBJECTIVES:
            known = ", ".join([*OBJECTIVES, *OBJECTIVE_ALIASES])
            raise UsageError(f"--objective: '{name}' is not an objective; choose from {known}")
        if names.count(name) > 1:
            raise UsageError(f"--objective: '{name}' is given twice; leave one of them out")
    return ",".join(names)


@dataclass
class RunningTrial:
    """A trial and its runs, one per seed; `reported` are the env steps of the evaluations that the pruner knows."""

    trial: Trial
    entries: list[Entry]
    reported: set[int] = field(default_factory=set)
    pruned: bool = False


def can_start(entry: Entry) -> bool:
    """Return whether a run may start: it is not running or finished, and this process has not started it before."""
    idle = entry.job is None and not entry.starts and not entry.stopped
    return idle and not entry.progress.is_over


def has_failed(entry: Entry) -> bool:
    """Return whether this process started a run that then ended without finishing."""
    return entry.job is None and entry.starts > 0 and entry.progress.status != "finished"
