"""A comparison as one value, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlplug_cli.compare.files import file_remarks, merge_moved_files
from rlplug_cli.compare.history import AXES, RETURN, SECONDS, History, history
from rlplug_cli.compare.lines import Line, Settings, envs, lines, runs_to_draw
from rlplug_cli.compare.results import (
    Cost,
    Improvement,
    Score,
    costs,
    improvements,
    overall,
    scores,
)
from rlplug_cli.compare.selection import Arm, arms, select_runs
from rlplug_core.errors import UsageError
from rlplug_core.runs import read_curves

#: With fewer seeds, an interval of 95 % covers clearly less: docs/compare.md has the table.
FEW_SEEDS = 10


@dataclass(frozen=True)
class Report:
    """The result of `rlplug compare`."""

    arms: tuple[Arm, ...]
    lines: tuple[Line, ...]
    scores: tuple[Score, ...]
    improvements: tuple[Improvement, ...]
    costs: tuple[Cost, ...]
    remarks: tuple[str, ...]
    settings: Settings


def report(
    words: Sequence[str],
    out: Path,
    metrics: Sequence[str],
    by: Sequence[str],
    settings: Settings,
    running: bool = False,
) -> Report:
    """Compare the runs that words name.

    Args:
        words: names of runs, groups or directories of runs.
        out: the directory of run directories.
        metrics: the metrics of the curves.
        by: options that label and group runs.
        settings: how curves and scores are made.
        running: whether unfinished runs have a separate curve if other runs of their arm are finished.

    Raises:
        UsageError: a word names nothing, or nothing was recorded yet.
    """
    compared, remarks = read_arms(words, out, metrics, by, settings)
    drawn = lines(compared, metrics, settings, running)
    if not drawn:
        raise missing_metrics_error(compared, metrics)
    return Report(
        arms=tuple(compared),
        lines=tuple(drawn),
        scores=(*scores(compared, settings), *overall(compared, settings)),
        improvements=tuple(improvements(compared, settings)),
        costs=tuple(costs(compared, settings)),
        remarks=(*remarks, *_remarks(compared, drawn, running)),
        settings=settings,
    )


def missing_metrics_error(
    compared: Sequence[Arm],
    metrics: Sequence[str],
) -> UsageError:
    """Return the error about metrics that no run has recorded; it names the recorded ones."""
    journals = [run.path / "journal.jsonl" for arm in compared for run in arm.runs]
    names = sorted({name for journal in journals for name in read_curves(journal)})
    return UsageError(
        f"no run here has recorded {' or '.join(metrics)}; recorded are {', '.join(names) or 'no metrics'}"
    )


def read_arms(
    words: Sequence[str],
    out: Path,
    metrics: Collection[str],
    by: Sequence[str],
    settings: Settings,
) -> tuple[list[Arm], list[str]]:
    """Return the arms of the named runs with the curves of `metrics`, and remarks about runs and files."""
    needed = [*metrics, *([AXES[settings.axis]] if AXES[settings.axis] else [])]
    needed += [SECONDS] if settings.targets else []
    histories, unreadable = _read_runs(words, out, needed)
    compared, remarks = arms(merge_moved_files(histories), by)
    return compared, [*unreadable, *remarks, *file_remarks([arm.runs for arm in compared])]


def _read_runs(
    words: Sequence[str],
    out: Path,
    needed: Collection[str],
) -> tuple[list[History], list[str]]:
    """Return the named runs, and remarks about unreadable ones.

    Raises:
        UsageError: an unreadable run was named itself, or no run is readable.
    """
    paths = select_runs(words, out)
    histories = list[History]()
    remarks = list[str]()
    for path in paths:
        try:
            histories.append(history(path, needed))
        except UsageError as error:
            if {str(path), path.name} & set(words) or (path is paths[-1] and not histories):
                raise
            remarks.append(f"{path.name} is left out: {error.__cause__}")
    return histories, remarks


def _remarks(
    compared: Sequence[Arm],
    drawn: Sequence[Line],
    running: bool,
) -> list[str]:
    """Return remarks about unfinished runs, runs without curves or final evaluations, and few seeds."""
    runs = [run for arm in compared for run in arm.runs]
    notes = []
    if pending := [run.path.name for run in runs if not run.is_finished]:
        notes.append(f"without final scores because they are not finished: {_first_names(pending)}")
    shown = {run for arm in compared for env in envs([arm]) for run in runs_to_draw(arm.on(env))}
    undrawn = [run.path.name for run in runs if run not in shown]
    if undrawn and not running:
        notes.append(
            f"left out of curves because other runs of their lines are finished: {_first_names(undrawn)}"
        )
    not_evaluated = [
        run.path.name
        for run in runs
        if run.is_finished and RETURN in run.curves and "best" not in run.scores
    ]
    if not_evaluated:
        notes.append(
            f"without a final evaluation (the last one in training counts): {_first_names(not_evaluated)}"
        )
    fewest = min(line.seeds for line in drawn)
    if fewest < FEW_SEEDS:
        notes.append(
            f"intervals of {fewest} seed{'s' if fewest > 1 else ''} are too narrow (docs/compare.md says how much)"
        )
    return notes


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def as_json(comparison: Report) -> str:
    """Return the report as JSON; infinities and NaN are null."""
    data = {
        "settings": {
            **vars(comparison.settings),
            "targets": dict(comparison.settings.targets or {}),
            "bounds": dict(comparison.settings.bounds or {}),
        },
        "arms": [
            {"label": arm.label, "runs": [_run(run) for run in arm.runs]} for arm in comparison.arms
        ],
        "curves": [_line(line) for line in comparison.lines],
        "scores": [_score(score) for score in comparison.scores],
        "improvements": [
            {**entry._asdict(), "probability": entry.probability._asdict()}
            for entry in comparison.improvements
        ],
        "costs": [entry._asdict() for entry in comparison.costs],
        "remarks": comparison.remarks,
    }
    return json.dumps(_finite(data), indent=1)


def _run(run: History) -> dict[str, object]:
    return {
        "path": str(run.path),
        "env": run.env,
        "algorithm": run.config["algorithm"],
        "seed": run.seed,
        "finished": run.is_finished,
        "scores": run.scores,
    }


def _score(score: Score) -> dict[str, object]:
    return {
        "env": score.env,
        "label": score.label,
        "checkpoint": score.checkpoint,
        "seeds": score.seeds,
        **{how: estimate._asdict() for how, estimate in score.estimates.items()},
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
    if not isinstance(value, float):
        return value
    return float(value) if math.isfinite(value) else None


def as_csv(comparison: Report) -> str:
    """Return every run's final scores and every arm's estimates as CSV, one per line."""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write(("env", "label", "checkpoint", "aggregate", "seed", "seeds", "value", "low", "high"))
    for arm in comparison.arms:
        for run in arm.runs:
            for checkpoint, value in run.scores.items():
                cells = (_cell(run.env), _cell(arm.label), checkpoint)
                write((*cells, "", run.seed, "", value, "", ""))
    for score in comparison.scores:
        for how, estimate in score.estimates.items():
            cells = (_cell(score.env), _cell(score.label), score.checkpoint)
            write((*cells, how, "", score.seeds, *estimate))
    return file.getvalue()


def _cell(text: str) -> str:
    """Return text that no spreadsheet reads as a formula, which could start a program."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
