"""Runs a study until its best options, its pictures and its end in MLflow."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlplug_cli.notes import short_path
from rlplug_cli.parameters import short_value_text
from rlplug_cli.render.live import number
from rlplug_cli.render.tables import table
from rlplug_cli.sweep.display import run_to_end
from rlplug_cli.sweep.executors import LocalPlace
from rlplug_cli.sweep.manifest import lock_directory
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_cli.tune import pictures, study
from rlplug_cli.tune.goal import Goal
from rlplug_cli.tune.search import Search, state_counts
from rlplug_cli.tune.strategies import check_grid, pruner, sampler
from rlplug_cli.tune.tune_options import TuneOptions
from rlplug_core.loop import cores, notice

#: How many trials a terminal shows.
ROWS = 10


@dataclass(frozen=True)
class Outcome:
    """The result of a study.

    Attributes:
        options: the options of the best trial and the fixed ones, in their own types.
        failure: the error of the last run that failed in this process, or "".
        objectives: their names. front: the trials of the Pareto front, if there are several objectives.
    """

    directory: Path
    trials: list[dict[str, Any]]
    best: dict[str, Any] | None
    options: dict[str, Any]
    importances: dict[str, float]
    pictures: tuple[Path, ...]
    failure: str = ""
    objectives: tuple[str, ...] = ("last",)
    front: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {
            "study": str(self.directory),
            "trials": self.trials,
            "best": self.best,
            "options": self.options,
            "importances": self.importances,
            "pictures": [str(path) for path in self.pictures],
            "pareto_front": list(self.front),
        }

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the names of the values of a trial."""
        several = len(self.objectives) > 1 or self.objectives == ("steps_per_second",)
        return self.objectives if several else ("return",)

    def text(self) -> str:
        """Return the best trials or the Pareto front, the importance of the options, and the paths."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial["params"]))
        complete = [trial for trial in self.trials if trial["state"] == "complete"]
        several = len(self.objectives) > 1
        if several:
            complete = [trial for trial in complete if trial["number"] in self.front]
        ranked = sorted(complete, key=lambda trial: -trial["value"])
        rows = []
        for trial in ranked if several else ranked[:ROWS]:
            params = [short_value_text(trial["params"].get(name)) for name in names]
            rows.append((str(trial["number"]), *map(number, trial["values"]), *params))
        titles = ("TRIAL", *map(str.upper, self.headings), *names)
        lines = [table(titles, rows) if rows else "no trial is complete", ""]
        if rows and several:
            lines.insert(0, "Pareto front")
        lines.append(state_counts(self.trials))
        if self.importances:
            shares = [f"{name} {share:.0%}" for name, share in self.importances.items()]
            lines.append(f"importance: {', '.join(shares)}")
        lines += [f"picture  {short_path(path)}" for path in self.pictures]
        return "\n".join([*lines, f"study    {short_path(self.directory)}"])


def run_study(
    directory: Path,
    goal: Goal,
    storage: str | None,
    tune: TuneOptions,
    as_json: bool,
) -> Outcome:
    """Run a study until all its trials are complete.

    Raises:
        MissingPackage: Optuna is not installed. UsageError: another process works on the directory, or it belongs to
            another search. Interrupted: a signal came; the same command continues.
    """
    study.require_optuna()
    check_grid(tune.sampler, goal.space, goal.trials)
    with lock_directory(directory) as lock:
        total: Any = goal.values["total_timesteps"]
        pool = TaskPool(directory, LocalPlace(lock), tune.jobs or cores())
        optuna_study = study.open_study(
            directory,
            goal.digest,
            storage,
            sampler=lambda trials: sampler(tune.sampler, tune.sampler_seed + trials, goal.space),
            pruner=pruner(tune.pruner if tune.prune else "", int(tune.warmup * total), total),
            former=goal.former_digest,
            objectives=len(goal.objectives),
        )
        search = Search(goal, optuna_study, pool)
        stream = sys.stderr if as_json else sys.stdout
        state = partial(_summary, search)
        interrupted = run_to_end(search, pool, stream, state, lambda: search.share)
        outcome = _outcome(directory, goal, search)
        from rlplug_cli.mlflow.conclusion import conclude

        conclude(directory, outcome.pictures, "KILLED" if interrupted else "FINISHED")
    if interrupted is not None:
        raise interrupted
    return outcome


def _summary(search: Search) -> str:
    """Return the numbers of trials by state, and the best value, as one line."""
    trials = study.summary(search.study)
    values = [trial["value"] for trial in trials if trial["state"] == "complete"]
    best = number(max(values, default=None))
    return f"{state_counts(trials) or 'no trials'}, of {search.goal.trials}; best {best}"


@notice("drawing the study's pictures; its best options follow")
def _outcome(directory: Path, goal: Goal, search: Search) -> Outcome:
    """Return the result so far, after drawing its pictures."""
    trials = study.summary(search.study)
    best = study.best(search.study)
    importances = study.importances(search.study, goal.space)
    paths = []
    if best is not None:
        paths.append(directory / "history.png")
        pictures.draw_history(paths[-1], trials, goal.objectives[0])
    if importances:
        paths.append(directory / "importance.png")
        pictures.draw_importance(paths[-1], importances)
    entries = search.pool.entries.values()
    failed = [
        entry for entry in entries if entry.progress.status not in ("finished", "interrupted")
    ]
    return Outcome(
        directory,
        trials=trials,
        best=None if best is None else next(row for row in trials if row["number"] == best.number),
        options={} if best is None else {**goal.fixed, **goal.with_types(best.params)},
        importances=importances,
        pictures=tuple(paths),
        failure=search.pool.failure_reason(failed[-1]) if failed else "",
        objectives=goal.objectives,
        front=tuple(study.pareto_front(search.study)) if len(goal.objectives) > 1 else (),
    )
