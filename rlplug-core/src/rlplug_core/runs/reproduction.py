"""Train a run again from its record, and report differences between the two runs and between their machines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlplug_core.errors import UsageError
from rlplug_core.loop.events import Progress
from rlplug_core.plugins.request import RunRequest
from rlplug_core.runs.api import resume, start
from rlplug_core.runs.checkpoint import Checkpoints, Saved, digests, read
from rlplug_core.runs.data import with_dataset
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read as read_journal
from rlplug_core.runs.listing import records
from rlplug_core.runs.reproducibility import differences, environment, recorded_environment
from rlplug_core.runs.run import Run, open_run, plan_of
from rlplug_core.runs.sources import names
from rlplug_core.runs.trust import require_known_start

#: The prefix of metrics about time and speed, which differ from run to run.
PERF = "perf/"


@dataclass(frozen=True)
class Reproduction:
    """A run that was trained again.

    Attributes:
        run: the new run.
        differs: sentences about differences; empty if all bits are equal.
        surroundings: changes that may cause differences: packages, versions, threads, machine.
    """

    run: Run
    differs: list[str]
    surroundings: list[str]

    @property
    def same(self) -> bool:
        return not self.differs


def reproduce(
    run: Path | str | Run,
    name: str | None = None,
    watch: Callable[[Progress], None] | None = None,
    trust: bool = False,
) -> Reproduction:
    """Train a finished run again, in a new directory next to it, and compare weights and records.

    A run that was extended after its end is extended again.

    Args:
        name: of the new run's directory; default: the old name with `-again`.
        trust: whether to execute code that came with the run and that another account wrote.

    Raises:
        UsageError: it is not finished, has no final checkpoint, or got another total before its end.
        RlplugError: training failed.
    """
    old = _finished_run(run, trust)
    extensions = _extensions(old)
    plan = with_dataset(plan_of(old), old.config.get("dataset"), old.path)
    final = _final_checkpoint(old)
    _, manifest = read(final.path, "clock")
    recorded = recorded_environment(final.path.name, manifest)
    surroundings = differences(recorded, environment(plan))
    if not manifest["exact"]:
        surroundings.append(f"the run could not be exact: {manifest['inexact']}")
    algorithm, env, options = names(old.path, old.directory.config)
    if plan.dataset:
        options = {**options, "dataset": plan.options.dataset}
    origins = dict.fromkeys(options, "record")
    request = RunRequest.make(algorithm, env if old.env is None else old.env, options, origins)
    new = start(
        request, out=old.path.parent, name=name or f"{old.name}-again", watch=watch, hooks=False
    )
    for total, rescale in extensions:
        new = resume(new, total_timesteps=total, rescale=rescale, watch=watch, hooks=False)
    return Reproduction(new, compare(old.directory, new.directory), surroundings)


def _finished_run(run: Path | str | Run, trust: bool) -> Run:
    """Return the run if it can be repeated.

    Raises:
        UsageError: it is an export, or not finished.
        Untrusted: it would fetch weights from a place that another account chose.
    """
    old = open_run(run, trust=trust)
    old.directory.require_run()
    if old.status != "finished":
        raise UsageError(
            f"run {old.name} is {old.status}; only a finished one can be compared with its repetition"
        )
    if not trust:
        require_known_start(old.path, old.directory.config)
    return old


def _final_checkpoint(run: Run) -> Saved:
    """Return the final checkpoint of a run.

    Raises:
        UsageError: it was deleted.
    """
    finals = Checkpoints(run.directory.checkpoints_path).kept("final")
    if not finals:
        raise UsageError(
            f"run {run.name} has no final checkpoint left to compare with in {run.directory.checkpoints_path}; "
            "bring it back, or train again with 'rlplug run'"
        )
    return finals[0]


def _extensions(run: Run) -> list[tuple[int, bool]]:
    """Return the totals that a finished run was extended to, each with whether its schedules were stretched to it.

    Raises:
        UsageError: it got a new total before its end; a repetition would not stop at that step.
    """
    totals: list[tuple[int, bool]] = []
    goal = (run.options["total_timesteps"], False)
    status = "killed"
    for record in read_journal(run.journal, kinds=("start", "end")):
        new = (
            (record.data["limit"], record.data.get("rescale", False))
            if "limit" in record.data
            else goal
        )
        if status == "finished" and record.kind == "start":
            totals.append(new)
        elif new != goal:
            raise UsageError(
                f"run {run.name}, {status} at step {record.step:,} of {goal[0]:,}, continued to {new[0]:,}; a "
                "repetition does not stop there, so only a run that had ended before its new total can be reproduced"
            )
        goal = new
        status = str(record.data["status"]) if record.kind == "end" else "killed"
    return totals


def compare(old: RunDirectory, new: RunDirectory) -> list[str]:
    """Return sentences about differences: the first unequal metric, and the unequal files of the final learner."""
    sentences = []
    difference = _first_difference(_numbers(old.path), _numbers(new.path))
    if difference:
        sentences.append(difference)
    finals = [Checkpoints(run.checkpoints_path).kept("final")[0].path for run in (old, new)]
    old_hashes, new_hashes = (digests(final, "learner") for final in finals)
    files = sorted(old_hashes.keys() | new_hashes.keys())
    return sentences + [
        f"{file} of the final checkpoint"
        for file in files
        if old_hashes.get(file) != new_hashes.get(file)
    ]


def _numbers(path: Path) -> dict[tuple[int, str], float]:
    """Return the recorded metrics by env step and name, except those about time and speed."""
    return {
        (record.step, key): value
        for record in records(path, "metrics", "evaluation")
        for key, value in record.data.items()
        if not key.startswith(PERF)
    }


def _first_difference(
    old: dict[tuple[int, str], float],
    new: dict[tuple[int, str], float],
) -> str:
    for step, key in sorted(old.keys() | new.keys()):
        old_value = old.get((step, key))
        new_value = new.get((step, key))
        if old_value != new_value and not (_nan(old_value) and _nan(new_value)):
            return f"{key} from step {step:,} on: it was {old_value} and is {new_value}"
    return ""


def _nan(value: float | None) -> bool:
    return isinstance(value, float) and math.isnan(value)
