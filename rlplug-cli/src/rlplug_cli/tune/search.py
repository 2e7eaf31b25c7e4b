"""The loop of a study: trials asked for as there is room, their runs watched, pruned and told."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlplug_cli.parameters import parsed, shown
from rlplug_cli.sweep.manifest import Sweep, Task, kept
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_cli.tune import study as studies
from rlplug_cli.tune.goal import OBJECTIVES, Goal, Running, gave_up, to_do
from rlplug_cli.tune.space import suggested

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial


class Search:
    """Carries a study on until it has all its trials."""

    def __init__(self, goal: Goal, study: Study, crew: TaskPool) -> None:
        self.goal = goal
        self.study = study
        self.crew = crew
        self.running: list[Running] = []
        for trial in studies.unfinished(study):
            self._take_up(trial)

    @property
    def done(self) -> bool:
        """Return whether every trial has been told."""
        return not self.running and studies.began(self.study) >= self.goal.trials

    def typed(self, params: Mapping[str, object]) -> dict[str, object]:
        """The options of a trial in their own types; Optuna keeps lists as texts."""
        known = {option.name: option for option in self.goal.options}
        return {
            name: parsed(known[name], value, self.goal.algorithm)
            if isinstance(value, str)
            else value
            for name, value in params.items()
        }

    def step(self) -> list[Entry]:
        """Look at what is running, tell what has ended, begin what there is room for; the runs that have ended."""
        ended = self.crew.look()
        for one in list(self.running):
            self._report(one)
            if self._told(one):
                self.running.remove(one)
        self._fill()
        return ended

    def _fill(self) -> None:
        """Start runs; those of trials that have begun come before a new trial."""
        while self.crew.room(self.goal.cores):
            waiting = [
                entry
                for one in self.running
                if not one.pruned
                for entry in one.entries
                if to_do(entry)
            ]
            if waiting:
                self.crew.start(waiting[0])
            elif studies.began(self.study) < self.goal.trials:
                self._take_up(self.study.ask())
            else:
                return

    def _take_up(self, trial: Trial) -> None:
        """Make a trial's runs tasks of this directory, or find them there, with words that may be in another order."""
        params = suggested(trial, self.goal.space)
        words = (
            *self.goal.words,
            *(
                word
                for name, value in params.items()
                for word in ("--set", f"{name}={said(value)}")
            ),
        )
        made = [
            Task(
                f"trial-{trial.number:04d}-s{seed}", self.goal.algorithm, self.goal.env, seed, words
            )
            for seed in self.goal.seeds
        ]
        sweep = Sweep.read(self.crew.directory)
        there = {task.name: task for task in sweep.tasks} if sweep else {}
        tasks = [there.get(task.name, task) for task in made]
        kept(self.crew.directory, "tune", tasks)
        entries = [self.crew.add(task, self.goal.values, self.goal.cores) for task in tasks]
        for entry in entries:
            if entry.standing.status == "failed":  # which would fail again
                entry.starts = 1
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        self.running.append(Running(trial, entries, set(frozen.intermediate_values)))

    def _report(self, one: Running) -> None:
        """Report each evaluation that all seeds have made, and prune where the pruner says so."""
        common = set.intersection(*(set(entry.standing.evaluations) for entry in one.entries))
        for step in sorted(common - one.reported):
            value = statistics.fmean(entry.standing.evaluations[step] for entry in one.entries)
            one.reported.add(step)
            if math.isnan(value) or one.pruned:
                continue
            one.trial.report(value, step)
            if (
                any(entry.standing.status != "finished" for entry in one.entries)
                and one.trial.should_prune()
            ):
                one.pruned = True
                for entry in one.entries:
                    self.crew.stop(entry)

    def _told(self, one: Running) -> bool:
        """Tell the study how a trial ended, if it has."""
        from optuna.trial import TrialState

        states = [entry.standing.status for entry in one.entries]
        if any(entry.job is not None for entry in one.entries):
            if any(gave_up(entry) for entry in one.entries) and not one.pruned:
                for entry in one.entries:
                    self.crew.stop(entry)
            return False
        if one.pruned:
            self.study.tell(one.trial, state=TrialState.PRUNED)
        elif all(state == "finished" for state in states):
            self._tell_value(one)
        elif any(gave_up(entry) for entry in one.entries):
            self.study.tell(one.trial, state=TrialState.FAIL)
        else:
            return False
        return True

    def _tell_value(self, one: Running) -> None:
        from optuna.trial import TrialState

        values = [OBJECTIVES[self.goal.objective](entry.standing) for entry in one.entries]
        whole = [value for value in values if value is not None and not math.isnan(value)]
        if len(whole) == len(values):
            self.study.tell(one.trial, statistics.fmean(whole))
        else:
            self.study.tell(one.trial, state=TrialState.FAIL)


def said(value: object) -> str:
    """A value as `--set` takes it."""
    return repr(value) if isinstance(value, float) else shown(value)


def titles(trials: Sequence[Mapping[str, object]]) -> str:
    """Return how many trials are how far, in a few words."""
    states = [one["state"] for one in trials]
    return ", ".join(
        f"{states.count(name)} {name}"
        for name in ("complete", "pruned", "fail", "running")
        if name in states
    )
