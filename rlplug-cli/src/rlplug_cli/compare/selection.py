"""The runs of a comparison: finds runs, groups and sweeps by name, and puts runs into arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlplug_cli.compare.history import History
from rlplug_cli.compare.labels import labels
from rlplug_core.errors import BadFile
from rlplug_core.runs import RunDirectory, find_run, run_directories


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: the runs of one configuration, over seeds and environments."""

    label: str
    runs: tuple[History, ...]

    def on(self, env: str) -> list[History]:
        """Return its runs on one environment, by seed."""
        return sorted((run for run in self.runs if run.env == env), key=lambda run: run.seed)


def select_runs(words: Sequence[str], out: Path) -> list[Path]:
    """Return the run directories that words name, each once.

    A word is a run (its path or its name in `out`), a directory of runs such as a sweep's, or the start of a group.

    Raises:
        UsageError: a word names nothing.
    """
    paths: dict[Path, Path] = {}
    for word in words:
        for path in _runs_of_word(word, out):
            paths.setdefault(path.resolve(), path)
    return list(paths.values())


def _runs_of_word(word: str, out: Path) -> list[Path]:
    for path in (Path(word), out / word):
        if (
            path.is_dir()
            and not (path / "config.json").is_file()
            and (inside := run_directories(path))
        ):
            return inside
    # Shorter words would be the start of many groups.
    grouped = [
        path for path in run_directories(out) if len(word) >= 4 and group(path).startswith(word)
    ]
    return grouped or [find_run(word, out)]


def group(path: Path) -> str:
    """Return the group of a run, or "" if its configuration cannot be read."""
    try:
        return str(RunDirectory(path).config["group"])
    except BadFile:
        return ""


def arms(
    runs: Sequence[History],
    by: Sequence[str] = (),
) -> tuple[list[Arm], list[str]]:
    """Return the arms of the runs, and remarks about runs that were left out.

    Runs that differ only in seed and environment are one arm; with `by`, runs with the same values of these options.

    Raises:
        UsageError: no run has an option named in `by`.
    """
    run_labels = labels(runs)
    longest_runs, remarks = _without_repetitions(runs, run_labels)
    line_labels = labels(longest_runs, by) if by else run_labels
    names = sorted({line_labels[run] for run in longest_runs})
    return [
        Arm(label, tuple(run for run in longest_runs if line_labels[run] == label))
        for label in names
    ], remarks


def _without_repetitions(
    runs: Sequence[History],
    run_labels: Mapping[History, str],
) -> tuple[list[History], list[str]]:
    """Return one run per configuration, environment and seed, since a repetition is not another sample.

    The longest finished run counts; without finished runs, the longest.
    """
    longest: dict[tuple[str, str, int], History] = {}
    remarks = []

    def length(run: History) -> tuple[bool, int]:
        steps = [int(curve.steps[-1]) for curve in run.curves.values()]
        return run.is_finished, max(steps, default=0)

    for run in sorted(runs, key=length):
        key = (run_labels[run], run.env, run.seed)
        if key in longest:
            remarks.append(
                f"{longest[key].path.name} is left out: {run.path.name} has its configuration and seed too"
            )
        longest[key] = run
    return sorted(longest.values(), key=lambda run: (run.config["created"], run.path.name)), remarks
