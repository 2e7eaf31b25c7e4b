"""A study from its first trial to its best options, its pictures and its place in MLflow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlplug_cli.lookup import shortened
from rlplug_cli.parameters import shown
from rlplug_cli.render.live import number
from rlplug_cli.render.tables import table
from rlplug_cli.sweep.display import display
from rlplug_cli.sweep.executors import Here, cores
from rlplug_cli.sweep.manifest import kept, locked
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_cli.tune import pictures
from rlplug_cli.tune import study as studies
from rlplug_cli.tune.goal import Goal
from rlplug_cli.tune.search import Search, titles
from rlplug_cli.tune.tune_options import Asked
from rlplug_core.errors import Interrupted

#: How many trials a terminal shows.
SHOWN = 10


@dataclass(frozen=True)
class Outcome:
    """The findings of a study; `options` are the best trial's with those that were fixed, in their own types.

    `failure` is what a run that failed said last, in this process; empty where none did.
    """

    directory: Path
    trials: list[dict[str, Any]]
    best: dict[str, Any] | None
    options: dict[str, Any]
    importances: dict[str, float]
    pictures: tuple[Path, ...]
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what a script wants to know."""
        return {
            "study": str(self.directory),
            "trials": self.trials,
            "best": self.best,
            "options": self.options,
            "importances": self.importances,
            "pictures": [str(path) for path in self.pictures],
        }

    def text(self) -> str:
        """The best trials, which options mattered, and where everything is."""
        names = list(dict.fromkeys(name for one in self.trials for name in one["params"]))
        ranked = sorted(
            (one for one in self.trials if one["state"] == "complete"),
            key=lambda one: -one["value"],
        )
        rows = [
            (
                str(one["number"]),
                number(one["value"]),
                *(_said(one["params"].get(name)) for name in names),
            )
            for one in ranked[:SHOWN]
        ]
        lines = [
            table(("TRIAL", "RETURN", *names), rows) if rows else "no trial is complete",
            "",
            titles(self.trials),
        ]
        if self.importances:
            lines.append(
                "what mattered: "
                + ", ".join(f"{name} {share:.0%}" for name, share in self.importances.items())
            )
        lines += [f"picture  {shortened(path)}" for path in self.pictures]
        return "\n".join([*lines, f"study    {shortened(self.directory)}"])


def tuned(
    directory: Path,
    goal: Goal,
    fixed: Mapping[str, Any],
    storage: str | None,
    asked: Asked,
    as_json: bool,
) -> Outcome:
    """Carry a study on until it has all its trials.

    Args:
        fixed: options that someone set, to be written beside the best ones.

    Raises:
        MissingPackage: Optuna is not installed. UsageError: the directory is at work, another's or of another search.
        Interrupted: a signal stopped it; typed again, it goes on.
    """
    with locked(directory) as lock:
        kept(directory, "tune", ())
        total: Any = goal.values["total_timesteps"]
        warmup = int(asked.warmup * total)
        study = studies.opened(
            directory,
            goal.digest,
            storage,
            seed=asked.sampler_seed,
            pruned=asked.prune,
            warmup=warmup,
            former=goal.former,
        )
        crew = TaskPool(directory, Here(lock), asked.jobs or cores())
        search = Search(goal, study, crew)
        interrupted = _carried_on(
            search, crew, directory.name, sys.stderr if as_json else sys.stdout
        )
        found = _outcome(directory, goal, fixed, search)
        from rlplug_cli.mlflow.conclusion import conclude

        conclude(directory, found.pictures, "KILLED" if interrupted else "FINISHED")
    if interrupted is not None:
        raise interrupted
    return found


def _carried_on(search: Search, crew: TaskPool, title: str, stream: Any) -> Interrupted | None:
    def so_far() -> str:
        trials = studies.summary(search.study)
        best = max((one["value"] for one in trials if one["state"] == "complete"), default=None)
        return f"{titles(trials) or 'no trials'}, of {search.goal.trials}; best {number(best)}"

    try:
        with display(title, crew, stream, so_far) as show, crew.at_work() as wait:
            while not search.done and not crew.signal:
                show(search.step())
                wait()
    except Interrupted as error:
        return error
    return None


def _outcome(directory: Path, goal: Goal, fixed: Mapping[str, object], search: Search) -> Outcome:
    trials = studies.summary(search.study)
    best = studies.best(search.study)
    importances = studies.importances(search.study, goal.space)
    drawn = []
    if best is not None:
        drawn.append(directory / "history.png")
        pictures.history(drawn[-1], trials, goal.objective)
    if importances:
        drawn.append(directory / "importance.png")
        pictures.importance(drawn[-1], importances)
    options = {**fixed, **search.typed(best.params)} if best is not None else {}
    told = next((one for one in trials if best is not None and one["number"] == best.number), None)
    failed = [
        entry
        for entry in search.crew.entries.values()
        if entry.standing.status not in ("finished", "interrupted")
    ]
    return Outcome(
        directory,
        trials=trials,
        best=told,
        options=options,
        importances=importances,
        pictures=tuple(drawn),
        failure=search.crew.last_words(failed[-1]) if failed else "",
    )


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else shown(value)
