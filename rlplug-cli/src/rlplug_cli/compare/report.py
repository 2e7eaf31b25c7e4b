"""A whole comparison as one value, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlplug_cli.compare.files import changed, together
from rlplug_cli.compare.history import AXES, RETURN, SECONDS, History, history
from rlplug_cli.compare.lines import Line, Settings, curved, envs, lines
from rlplug_cli.compare.results import (
    Cost,
    Improvement,
    Score,
    costs,
    improvements,
    overall,
    scores,
)
from rlplug_cli.compare.selection import Arm, arms, selected
from rlplug_core.errors import UsageError
from rlplug_core.runs.curves import curves

#: With fewer seeds than this an interval of 95 % covers clearly less: docs/compare.md has the table.
FEW_SEEDS = 10


@dataclass(frozen=True)
class Report:
    """The findings of `rlplug compare`."""

    arms: tuple[Arm, ...]
    lines: tuple[Line, ...]
    scores: tuple[Score, ...]
    improvements: tuple[Improvement, ...]
    costs: tuple[Cost, ...]
    remarks: tuple[str, ...]
    settings: Settings


def report(
    words: Sequence[str], out: Path, metrics: Sequence[str], by: Sequence[str], settings: Settings
) -> Report:
    """Compare the runs that words mean.

    Raises:
        UsageError: a word means nothing, or nothing was recorded yet.
    """
    found, remarks = read_arms(words, out, metrics, by, settings)
    drawn = lines(found, metrics, settings)
    if not drawn:
        raise unrecorded(found, metrics)
    return Report(
        arms=tuple(found),
        lines=tuple(drawn),
        scores=(*scores(found, settings), *overall(found, settings)),
        improvements=tuple(improvements(found, settings)),
        costs=tuple(costs(found, settings)),
        remarks=(*remarks, *_remarks(found, drawn)),
        settings=settings,
    )


def unrecorded(found: Sequence[Arm], metrics: Sequence[str]) -> UsageError:
    """The error about metrics that no run has recorded; it names those that are in their journals."""
    journals = [run.path / "journal.jsonl" for arm in found for run in arm.runs]
    names = sorted({name for journal in journals if journal.exists() for name in curves(journal)})
    return UsageError(
        f"none of these runs has recorded {' or '.join(metrics)}; they have {', '.join(names) or 'nothing'}"
    )


def read_arms(
    words: Sequence[str], out: Path, metrics: Collection[str], by: Sequence[str], settings: Settings
) -> tuple[list[Arm], list[str]]:
    """The arms of the runs that words mean, with the curves of `metrics`, and remarks about runs and files."""
    needed = [*metrics, *([AXES[settings.axis]] if AXES[settings.axis] else [])]
    needed += [SECONDS] if settings.targets else []
    read, unreadable = _read(words, out, needed)
    found, remarks = arms(together(read), by)
    return found, [*unreadable, *remarks, *changed([arm.runs for arm in found])]


def _read(
    words: Sequence[str], out: Path, needed: Collection[str]
) -> tuple[list[History], list[str]]:
    """Return the runs that words mean, and remarks about those that cannot be read.

    Raises:
        UsageError: such a run was named by itself, or there is no other.
    """
    paths = selected(words, out)
    found = list[History]()
    remarks = list[str]()
    for path in paths:
        try:
            found.append(history(path, needed))
        except UsageError as error:
            if {str(path), path.name} & set(words) or (path is paths[-1] and not found):
                raise
            remarks.append(f"{path.name} is left out: {error.__cause__}")
    return found, remarks


def _remarks(found: Sequence[Arm], drawn: Sequence[Line]) -> list[str]:
    """Return what one should know before believing the figures."""
    runs = [run for arm in found for run in arm.runs]
    said = []
    if pending := [run.path.name for run in runs if not run.finished]:
        said.append(f"not finished, so without final scores: {_some(pending)}")
    shown = {run for arm in found for env in envs([arm]) for run in curved(arm.on(env))}
    if cut := [run.path.name for run in runs if run not in shown]:
        said.append(f"left out of curves, as others of their lines are finished: {_some(cut)}")
    single = [
        run.path.name
        for run in runs
        if run.finished and RETURN in run.curves and "best" not in run.scores
    ]
    if single:
        said.append(
            f"without a final evaluation, so judged by the last one in training: {_some(single)}"
        )
    fewest = min(line.seeds for line in drawn)
    if fewest < FEW_SEEDS:
        said.append(
            f"intervals of {fewest} seed{'s' if fewest > 1 else ''} are too narrow (docs/compare.md says how much)"
        )
    return said


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def as_json(found: Report) -> str:
    """The report as JSON; what is infinite or no number is null."""
    estimates = [
        {
            "env": s.env,
            "label": s.label,
            "checkpoint": s.checkpoint,
            "seeds": s.seeds,
            **{how: one._asdict() for how, one in s.estimates.items()},
        }
        for s in found.scores
    ]
    whole = {
        "settings": {
            **vars(found.settings),
            "targets": dict(found.settings.targets or {}),
            "bounds": dict(found.settings.bounds or {}),
        },
        "arms": [
            {"label": arm.label, "runs": [_run(run) for run in arm.runs]} for arm in found.arms
        ],
        "curves": [_line(line) for line in found.lines],
        "scores": estimates,
        "improvements": [
            {**one._asdict(), "probability": one.probability._asdict()}
            for one in found.improvements
        ],
        "costs": [one._asdict() for one in found.costs],
        "remarks": found.remarks,
    }
    return json.dumps(_finite(whole), indent=1)


def _run(run: History) -> dict[str, object]:
    return {
        "path": str(run.path),
        "env": run.env,
        "algorithm": run.config["algorithm"],
        "seed": run.seed,
        "finished": run.finished,
        "scores": run.scores,
    }


def _line(line: Line) -> dict[str, object]:
    band = {name: values.tolist() for name, values in line.band._asdict().items()}
    return {
        "env": line.env,
        "metric": line.metric,
        "label": line.label,
        "seeds": line.seeds,
        "x": line.x.tolist(),
        **band,
    }


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return (
        float(value)
        if isinstance(value, float) and math.isfinite(value)
        else None
        if isinstance(value, float)
        else value
    )


def as_csv(found: Report) -> str:
    """Every run's final scores and every arm's estimates, one per line; what is missing is empty."""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write(("env", "label", "checkpoint", "aggregate", "seed", "seeds", "value", "low", "high"))
    for arm in found.arms:
        for run in arm.runs:
            for checkpoint, value in run.scores.items():
                write((run.env, arm.label, checkpoint, "", run.seed, "", value, "", ""))
    for score in found.scores:
        for how, one in score.estimates.items():
            write((score.env, score.label, score.checkpoint, how, "", score.seeds, *one))
    return file.getvalue()
