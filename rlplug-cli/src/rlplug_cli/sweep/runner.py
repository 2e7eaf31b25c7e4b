"""A sweep from its tasks to its comparison: what is missing or was interrupted is done, and nothing twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.lookup import shortened
from rlplug_cli.output import echo, echo_json
from rlplug_cli.sweep.display import display, outcome, tally
from rlplug_cli.sweep.executors import Here, Place, cores
from rlplug_cli.sweep.manifest import Task, kept, locked
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_core.errors import Interrupted, RlplugError, UsageError

if TYPE_CHECKING:
    from rlplug_cli.compare.report import Report

#: What a sweep writes of its comparison.
PAGE = "compare.html"
#: Around the work on a directory: gives a place for its tasks, and how many cores that has.
Elsewhere = Callable[[Path], AbstractContextManager[tuple[Place, int]]]


def swept(
    kind: str,
    directory: Path,
    tasks: Sequence[Task],
    resolved: Callable[[Task], Mapping[str, object]],
    costs: Callable[[Task], int],
    jobs: int | None,
    as_json: bool,
    on: Elsewhere | None = None,
    quiet: bool = False,
) -> None:
    """Carry out the tasks of a directory and tell what came of all that it holds.

    Args:
        resolved: the options that a task sets, presets included.
        costs: how many cores a task takes.
        jobs: how many tasks run at once; without it, as many as the cores allow.
        on: where they are carried out, if not here.
        quiet: whether nothing is said before the end.

    Raises:
        UsageError: the directory is at work, or holds something else. Interrupted: a signal stopped it.
        RlplugError: a task failed; the others were carried out.
    """
    with locked(directory) as lock:
        sweep = kept(directory, kind, tasks)
        stream = sys.stderr if as_json else sys.stdout
        with on(directory) if on else nullcontext((Here(lock), cores())) as (place, room):
            crew = TaskPool(directory, place, jobs or room)
            for task in sweep.tasks:
                crew.add(task, resolved(task), 1 if jobs else costs(task))
            interrupted = _carried_out(crew, f"{directory.name}", None if quiet else stream)
        found = _conclude(directory, interrupted is None)
        if as_json:
            echo_json(result(crew))
        else:
            echo(conclusion(directory, found))
        if interrupted is not None:
            raise interrupted
        if failed := [
            entry for entry in crew.entries.values() if entry.standing.status != "finished"
        ]:
            raise RlplugError(_failures(crew, failed))


def _carried_out(crew: TaskPool, title: str, stream: Any) -> Interrupted | None:
    waiting = [entry for entry in crew.entries.values() if entry.standing.status != "finished"]
    try:
        with display(title, crew, stream, lambda: tally(crew)) as show, crew.at_work() as wait:
            while (waiting or crew.working) and not crew.signal:
                ended = crew.look()
                while waiting and crew.room(waiting[0].cores):
                    crew.start(waiting.pop(0))
                show(ended)
                wait()
    except Interrupted as error:
        return error
    return None


def _conclude(directory: Path, whole: bool) -> Report | None:
    """Write the comparison's page and tell MLflow's parent, where there is one; None if no run has an evaluation."""
    from rlplug_cli.compare.lines import Settings
    from rlplug_cli.compare.page import page
    from rlplug_cli.compare.report import report
    from rlplug_cli.mlflow.conclusion import conclude

    found = None
    path = directory / PAGE
    try:
        found = report([str(directory)], directory.parent, ("eval/return_mean",), (), Settings())
        path.write_text(page(found, directory.name), encoding="utf-8")
    except UsageError:  # no run got as far as an evaluation
        path.unlink(missing_ok=True)
    conclude(directory, [path] if found else [], "FINISHED" if whole else "KILLED")
    return found


def conclusion(directory: Path, found: Report | None) -> str:
    """The last lines on a terminal: final scores and where everything is."""
    from rlplug_cli.compare.tables import text

    lines = [] if found is None else [text(found), "", f"page     {shortened(directory / PAGE)}"]
    return "\n".join([*lines, f"runs     {shortened(directory)}"])


def result(crew: TaskPool) -> dict[str, object]:
    """Return what a script wants to know about a sweep."""
    page = crew.directory / PAGE
    return {
        "sweep": str(crew.directory),
        "name": crew.directory.name,
        "page": str(page) if page.exists() else None,
        "runs": [_run(entry) for entry in crew.entries.values()],
    }


def _run(entry: Entry) -> dict[str, object]:
    task = entry.task
    standing = entry.standing
    return {
        "name": task.name,
        "path": str(standing.path),
        "algorithm": task.algorithm,
        "env": task.env,
        "seed": task.seed,
        "status": standing.status,
        "steps": standing.steps,
        "best": standing.best,
        "final": standing.finals,
        "error": standing.error or None,
    }


def _failures(crew: TaskPool, failed: Sequence[Entry]) -> str:
    first = failed[0]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return (
        f"{len(failed)} of {len(crew.entries)} runs did not finish: {first.task.name}{more} "
        f"({outcome(crew, first)}); the same command tries them again"
    )
