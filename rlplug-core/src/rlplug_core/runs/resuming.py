"""Continue a run: choose the checkpoint and the new end, and train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlplug_core.errors import UsageError, warn
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.checkpoint import Checkpoints, Point, Saved
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.journal import read
from rlplug_core.runs.new_run import with_start
from rlplug_core.runs.reproducibility import differences, environment, recorded_environment, writers
from rlplug_core.runs.run import Run
from rlplug_core.runs.session import Session
from rlplug_core.types import State


def resume_from_checkpoint(
    run: Run,
    plan: Plan,
    total_timesteps: int | None,
    rescale: bool,
    session: Callable[[Plan], Session],
) -> None:
    """Continue the training of a run from its newest readable checkpoint, or from the start if it has none.

    Args:
        plan: the run's plan.
        session: makes a session from a plan.
        total_timesteps: the new end; None keeps the old one.
        rescale: whether schedules are stretched to the new end.

    Raises:
        UsageError: there is nothing left to do. BadCheckpoint: no checkpoint can be read.
    """
    status = run.directory.last_status()
    checkpoints = Checkpoints(run.directory.checkpoints_path)
    if not checkpoints.kept("final", "step"):
        _check_no_lost_checkpoint(run, status)
        total_timesteps, rescale = _goal(run, {}, total_timesteps, rescale)
        plan, warm = with_start(plan)
        session(plan).train(None, total_timesteps, rescale, buffer=warm.buffer() if warm else None)
        return
    saved, components, manifest = _newest(checkpoints)
    _check_total(run, saved, total_timesteps)
    if status != "finished":
        total_timesteps, rescale = _goal(run, manifest, total_timesteps, rescale)
    limit = total_timesteps or components["clock"]["limit"]
    if rescale:
        total_timesteps = limit  # recorded, so that a reproduction of the run rescales there too
    if saved.kind == "final" and (total_timesteps is None or saved.step >= limit):
        _complete(run, lambda: session(plan), saved, limit, components["events"]["ended"])
        return
    recorded = recorded_environment(saved.path.name, manifest)
    current = environment(plan)
    for difference in differences(recorded, current):
        warn(f"this resume will not give the same bits: {difference}")
    plan.make_env(1).close()  # fails before the run changes
    point = Point(saved.step, components, manifest.get("journal"), writers(recorded, current))
    session(plan).train(point, total_timesteps, rescale)


def _newest(checkpoints: Checkpoints) -> tuple[Saved, dict[str, State], dict[str, Any]]:
    """Return the newest readable checkpoint, its components and its manifest; warn about damaged ones."""
    saved, components, manifest, warnings = checkpoints.load(("final", "step"))
    for warning in warnings:
        warn(f"{warning}; falling back to {saved.path.name}")
    return saved, components, manifest


def _complete(
    run: Run,
    session: Callable[[], Session],
    saved: Saved,
    limit: int,
    ended: str,
) -> None:
    """Run the final evaluation or the hooks that are missing after a final checkpoint.

    Raises:
        UsageError: nothing is left.
    """
    if run.directory.last_status() != "finished":
        session().conclude(saved.step, ended)
    elif run.directory.hooks_pending:
        session().call_hooks_again()
    else:
        raise _finished_error(run, saved, limit, ended)


def _check_total(run: Run, saved: Saved, total_timesteps: int | None) -> None:
    """Raise UsageError if a stopped run has already passed the new total."""
    if total_timesteps is not None and saved.kind != "final" and total_timesteps <= saved.step:
        raise UsageError(
            f"run {run.name} is at step {saved.step:,} and would end at {total_timesteps:,}; --total-timesteps counts "
            "all its steps, also those before the stop: give more, or leave it out to reach the first total"
        )


def _check_no_lost_checkpoint(run: Run, status: str) -> None:
    """Raise UsageError if a run had a checkpoint: starting again would supersede its records."""
    names = [record.data["name"] for record in read(run.journal, kinds=("checkpoint",))]
    last = next((name for name in reversed(names) if not name.startswith("best")), None)
    if last is not None or status == "finished":
        raise UsageError(
            f"run {run.name} cannot continue, because its checkpoints are gone from {run.directory.checkpoints_path}"
            f"{f' (the last was {last})' if last else ''}; bring them back, or train again with another --name"
        )


def _goal(
    run: Run,
    manifest: Mapping[str, Any],
    total_timesteps: int | None,
    rescale: bool,
) -> tuple[int | None, bool]:
    """Return the limit, and whether schedules are rescaled to it: those of this request, or of the last process.

    The last process may have died before it saved them in a checkpoint.
    """
    starts = list(read(run.journal, manifest.get("journal", 0), kinds=("start",)))
    if total_timesteps is not None or not starts:
        return total_timesteps, rescale
    return starts[-1].data.get("limit"), rescale or starts[-1].data.get("rescale", False)


def _finished_error(
    run: Run,
    saved: Saved,
    limit: int,
    ended: str,
) -> UsageError:
    """Return the error about a run that is finished; `ended` is why it stopped before its limit."""
    if saved.step >= limit:
        return UsageError(
            f"run {run.name} is finished at step {saved.step}; "
            f"'rlplug resume {shell_word(run.path)} --total-timesteps N' with a larger N continues"
        )
    return UsageError(
        f"run {run.name} is finished, stopped at step {saved.step}: {ended}; "
        f"'rlplug resume {shell_word(run.path)} --total-timesteps {limit}' continues without this condition"
    )
