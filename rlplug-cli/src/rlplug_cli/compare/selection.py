"""The runs of a comparison: words that name runs, groups, sweeps or directories, and the arms they form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlplug_cli.compare.history import History
from rlplug_cli.compare.labels import labels
from rlplug_cli.lookup import directories, find_run
from rlplug_core.errors import BadFile
from rlplug_core.runs.directory import RunDirectory


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: the runs of one configuration, over seeds and environments."""

    label: str
    runs: tuple[History, ...]

    def on(self, env: str) -> list[History]:
        """Its runs on one environment, in the order of their seeds."""
        return sorted((run for run in self.runs if run.env == env), key=lambda run: run.seed)


def selected(words: Sequence[str], out: Path) -> list[Path]:
    """The run directories that words mean, each once.

    A word is a run (its path or its name in `out`), a directory of runs such as a sweep's, or the beginning of a group.

    Raises:
        UsageError: a word means nothing here.
    """
    found: dict[Path, Path] = {}
    for word in words:
        for path in _meant(word, out):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _meant(word: str, out: Path) -> list[Path]:
    for path in (Path(word), out / word):
        if path.is_dir() and not (path / "config.json").is_file() and (inside := directories(path)):
            return inside
    grouped = [path for path in directories(out) if len(word) >= 4 and group(path).startswith(word)]
    return grouped or [find_run(word, out)]


def group(path: Path) -> str:
    """The group of a run; empty where its configuration cannot be read."""
    try:
        return str(RunDirectory(path).config["group"])
    except BadFile:
        return ""


def arms(runs: Sequence[History], by: Sequence[str] = ()) -> tuple[list[Arm], list[str]]:
    """The arms that runs form, and remarks about runs that were left out.

    Runs that differ in seed and environment alone are one arm; with `by`, those that have the same values of these
    options.

    Raises:
        UsageError: no run has an option named in `by`.
    """
    own = labels(runs)
    kept, remarks = _once(runs, own)
    shown = labels(kept, by) if by else own
    every = sorted({shown[run] for run in kept})
    return [
        Arm(label, tuple(run for run in kept if shown[run] == label)) for label in every
    ], remarks


def _once(runs: Sequence[History], own: Mapping[History, str]) -> tuple[list[History], list[str]]:
    """One run per configuration and seed: the one with most steps, since a repetition is no further sample."""
    found: dict[tuple[str, str, int], History] = {}
    remarks = []
    for run in sorted(runs, key=_length):
        key = (own[run], run.env, run.seed)
        if key in found:
            remarks.append(
                f"{found[key].path.name} is left out: {run.path.name} has its configuration and seed too"
            )
        found[key] = run
    return sorted(found.values(), key=lambda run: (run.config["created"], run.path.name)), remarks


def _length(run: History) -> tuple[bool, int]:
    return run.finished, max((int(curve.steps[-1]) for curve in run.curves.values()), default=0)
