"""Runs a sweep from its tasks to its comparison: it resumes interrupted runs, starts new ones, and repeats none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_cli.file_checks import refuse_irregular
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.sweep.display import outcome, run_to_end, status_counts
from rlplug_cli.sweep.executors import LocalPlace, Place
from rlplug_cli.sweep.manifest import Kind, Task, lock_directory, open_sweep
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_core.config import replace_file
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.loop import cores, notice

if TYPE_CHECKING:
    from rlplug_cli.compare.report import Report

#: The page that a sweep writes about its comparison.
PAGE = "compare.html"
#: Makes a place other than this machine: takes a directory, returns the place for its tasks and its number of cores.
PlaceMaker = Callable[[Path], AbstractContextManager[tuple[Place, int]]]


def run_sweep(
    kind: Kind,
    directory: Path,
    tasks: Sequence[Task],
    options: Callable[[Task], Mapping[str, object]],
    costs: Callable[[Task], int],
    jobs: int | None,
    as_json: bool,
    make_place: PlaceMaker | None = None,
    quiet: bool = False,
) -> None:
    """Run the tasks of a directory, then print the comparison of all its runs.

    Args:
        options: the option values of a task, presets included.
        costs: the number of cores that a task needs.
        jobs: how many tasks run at once; by default as many as the cores allow.
        make_place: makes the place of the tasks, if it is not this machine.
        quiet: print nothing before the end.

    Raises:
        UsageError: another process works on the directory, or it holds something else. Interrupted: a signal came.
        RlplugError: a task failed; the others have run.
    """
    with lock_directory(directory) as lock:
        sweep = open_sweep(directory, kind, tasks)
        refuse_irregular(directory / PAGE)
        stream = sys.stderr if as_json else sys.stdout
        local = nullcontext((LocalPlace(lock), cores()))
        with make_place(directory) if make_place else local as (place, size):
            pool = TaskPool(directory, place, jobs or size)
            for task in sweep.tasks:
                pool.add(task, options(task), 1 if jobs else costs(task))
            interrupted = run_to_end(
                TaskQueue(pool), pool, None if quiet else stream, lambda: status_counts(pool)
            )
        report = write_comparison(directory, interrupted is None)
        if as_json:
            echo_json(result(pool))
        else:
            echo(last_lines(directory, report))
        if interrupted is not None:
            raise interrupted
        _raise_failures(pool)


class TaskQueue:
    """The waiting tasks of a pool; each starts in its turn when there is room for it."""

    def __init__(self, pool: TaskPool) -> None:
        self.pool = pool
        self.entries = [entry for entry in pool.entries.values() if not entry.progress.is_over]

    @property
    def done(self) -> bool:
        return not self.entries and not self.pool.working

    def step(self) -> Sequence[Entry]:
        ended = self.pool.poll()
        while self.entries and self.pool.has_room(self.entries[0].cores):
            self.pool.start(self.entries.pop(0))
        return ended


@notice("comparing the runs; their scores follow")
def write_comparison(directory: Path, complete: bool) -> Report | None:
    """Write the comparison's page and end the parent run in MLflow; return None if no run has an evaluation."""
    from rlplug_cli.compare.lines import Settings
    from rlplug_cli.compare.page import page
    from rlplug_cli.compare.report import report
    from rlplug_cli.mlflow.conclusion import conclude

    path = directory / PAGE
    try:
        content = report([str(directory)], directory.parent, ("eval/return_mean",), (), Settings())
        replace_file(path, page(content, directory.name).encode(errors="replace"))
    except UsageError:  # no run has reached an evaluation
        path.unlink(missing_ok=True)
        content = None
    conclude(directory, [path] if content else [], "FINISHED" if complete else "KILLED")
    return content


def last_lines(directory: Path, report: Report | None) -> str:
    """Return the last lines on a terminal: the final scores and the paths."""
    from rlplug_cli.compare.tables import text

    lines = []
    if report is not None:
        lines = [text(report), "", f"page     {short_path(directory / PAGE)}"]
    return "\n".join([*lines, f"runs     {short_path(directory)}"])


def result(pool: TaskPool) -> dict[str, object]:
    """Return a sweep's result for `--json`."""
    page = pool.directory / PAGE
    return {
        "sweep": str(pool.directory),
        "name": pool.directory.name,
        "page": str(page) if page.exists() else None,
        "runs": [_run_result(entry) for entry in pool.entries.values()],
    }


def _run_result(entry: Entry) -> dict[str, object]:
    task = entry.task
    progress = entry.progress
    return {
        "name": task.name,
        "path": str(progress.path),
        "algorithm": task.algorithm,
        "env": task.env,
        "seed": task.seed,
        "status": progress.status,
        "steps": progress.steps,
        "best": progress.best,
        "final": progress.finals,
        "error": progress.error or None,
    }


def _raise_failures(pool: TaskPool) -> None:
    failed = [entry for entry in pool.entries.values() if entry.progress.status != "finished"]
    if not failed:
        return
    first = failed[0]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    raise RlplugError(
        f"{len(failed)} of {len(pool.entries)} runs did not finish: {first.task.name}{more} "
        f"({outcome(pool, first)}); type the same command again to retry them"
    )
