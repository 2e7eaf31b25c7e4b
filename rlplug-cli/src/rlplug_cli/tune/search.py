"""The loop of a study: asks for trials, watches their runs, prunes them and reports their values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlplug_cli.parameters import value_text
from rlplug_cli.sweep.manifest import Task, open_sweep
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_cli.tune import study as studies
from rlplug_cli.tune.goal import OBJECTIVES, Goal, RunningTrial, can_start, has_failed
from rlplug_cli.tune.space import suggest

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial


class Search:
    """Runs a study until all its trials have ended; the lock of the pool's directory must be held."""

    def __init__(self, goal: Goal, study: Study, pool: TaskPool) -> None:
        self.goal = goal
        self.study = study
        self.pool = pool
        self.sweep = open_sweep(pool.directory, "tune", ())
        self.running: list[RunningTrial] = []
        for trial in studies.running_trials(study):
            self._add_trial(trial)

    @property
    def done(self) -> bool:
        """Return whether every trial has ended."""
        return not self.running and studies.count(self.study) >= self.goal.trials

    @property
    def share(self) -> float:
        """Return the part of all trials that is done, from 0 to 1."""
        ended = studies.count(self.study) - len(self.running)
        runs = [
            statistics.fmean(entry.progress.share for entry in trial.entries)
            for trial in self.running
        ]
        return min(1.0, (ended + sum(runs)) / self.goal.trials)

    def step(self) -> list[Entry]:
        """Poll the runs, report ended trials, start new runs; return the runs that have ended."""
        ended = self.pool.poll()
        for trial in list(self.running):
            self._report(trial)
            if self._finish(trial):
                self.running.remove(trial)
        self._start_runs()
        return ended

    def _start_runs(self) -> None:
        """Start runs while there is room; those of running trials come before a new trial."""
        while self.pool.has_room(self.goal.cores):
            open_trials = [trial for trial in self.running if not trial.pruned]
            entries = [entry for trial in open_trials for entry in trial.entries]
            waiting = [entry for entry in entries if can_start(entry)]
            if waiting:
                self.pool.start(waiting[0])
            elif studies.count(self.study) < self.goal.trials:
                self._add_trial(self.study.ask())
            else:
                return

    def _add_trial(self, trial: Trial) -> None:
        """Add a trial's runs to the tasks; tasks of an earlier process stay, maybe with words in another order."""
        words = list(self.goal.words)
        for name, value in suggest(trial, self.goal.space).items():
            words += ["--set", f"{name}={set_text(value)}"]
        earlier_tasks = {task.name: task for task in self.sweep.tasks}
        tasks = []
        for seed in self.goal.seeds:
            name = f"trial-{trial.number:04d}-s{seed}"
            task = Task(name, self.goal.algorithm, self.goal.env, seed, tuple(words))
            tasks.append(earlier_tasks.get(name, task))
        self.sweep = self.sweep.add(self.pool.directory, tasks)
        entries = [self.pool.add(task, self.goal.values, self.goal.cores) for task in tasks]
        for entry in entries:
            if entry.progress.status == "failed":  # it would fail again
                entry.starts = 1
        stored = self.study.get_trials(deepcopy=False)[trial.number]
        self.running.append(RunningTrial(trial, entries, set(stored.intermediate_values)))

    def _report(self, trial: RunningTrial) -> None:
        """Report each evaluation that all seeds have reached, and prune the trial if the pruner says so."""
        common = set.intersection(*(set(entry.progress.evaluations) for entry in trial.entries))
        for step in sorted(common - trial.reported):
            value = statistics.fmean(entry.progress.evaluations[step] for entry in trial.entries)
            trial.reported.add(step)
            if math.isnan(value) or trial.pruned or len(self.goal.objectives) > 1:
                continue
            trial.trial.report(value, step)
            unfinished = any(entry.progress.status != "finished" for entry in trial.entries)
            if unfinished and trial.trial.should_prune():
                trial.pruned = True
                self._stop(trial)

    def _stop(self, trial: RunningTrial) -> None:
        for entry in trial.entries:
            self.pool.stop(entry)

    def _finish(self, trial: RunningTrial) -> bool:
        """Tell the study how a trial ended; return whether it has ended."""
        from optuna.trial import TrialState

        failed = any(has_failed(entry) for entry in trial.entries)
        if any(entry.job is not None for entry in trial.entries):
            if failed and not trial.pruned:
                self._stop(trial)
            return False
        if trial.pruned:
            self.study.tell(trial.trial, state=TrialState.PRUNED)
        elif all(entry.progress.status == "finished" for entry in trial.entries):
            self._report_value(trial)
        elif failed:
            self.study.tell(trial.trial, state=TrialState.FAIL)
        else:
            return False
        return True

    def _report_value(self, trial: RunningTrial) -> None:
        """Tell the study the mean of each objective over seeds, or that the trial failed if a seed has no value."""
        from optuna.trial import TrialState

        means = []
        for name in self.goal.objectives:
            values = [OBJECTIVES[name](entry.progress) for entry in trial.entries]
            numbers = [value for value in values if value is not None and not math.isnan(value)]
            if len(numbers) < len(values):
                self.study.tell(trial.trial, state=TrialState.FAIL)
                return
            means.append(statistics.fmean(numbers))
        self.study.tell(trial.trial, means)


def set_text(value: object) -> str:
    """Return a value as `--set` reads it."""
    return repr(value) if isinstance(value, float) else value_text(value)


def state_counts(trials: Sequence[Mapping[str, object]]) -> str:
    """Return the number of trials in each state."""
    states = [trial["state"] for trial in trials]
    names = [name for name in ("complete", "pruned", "fail", "running") if name in states]
    return ", ".join(f"{states.count(name)} {name}" for name in names)
