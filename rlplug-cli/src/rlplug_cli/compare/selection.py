"""The runs of a comparison: words that name runs, groups, sweeps or directories, and the arms they form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlplug_cli.compare.history import History
from rlplug_cli.lookup import directories, located
from rlplug_core.errors import BadFile, UsageError, did_you_mean
from rlplug_core.runs.directory import PLACES, RunDirectory

#: Origins of options that someone chose; others come from presets and defaults.
CHOSEN = ("option", "set", "net", "config")
#: What options of an environment begin with, which are there only where somebody gave them.
OF_ENV = "env."
#: Options that say how a run is done and not what it is.
IDLE = PLACES | {
    "seed", "device", "actor_device", "threads", "keep_checkpoints", "worker_timeout", "compile", "cudagraphs",
}  # fmt: skip


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
    return grouped or [located(word, out)]


def group(path: Path) -> str:
    """The group of a run; empty where its configuration cannot be read."""
    try:
        return str(RunDirectory(path).config["group"])
    except BadFile:
        return ""


def arms(runs: Iterable[History], by: Sequence[str] = ()) -> tuple[list[Arm], list[str]]:
    """The arms that runs form, and remarks about runs that were left out.

    Runs that differ in seed and environment alone are one arm. Its label is the algorithm and, of the options that
    differ within an environment, those that tell its arms apart; with `by`, the values of these options alone.

    Raises:
        UsageError: no run has an option named in `by`.
    """
    kept, remarks = _once(runs)
    if by:
        _refuse_unknown(by, kept)
        names = dict.fromkeys(kept, tuple(by))
    else:
        names = _telling(kept)
    called = _called({run.config["algorithm"] for run in kept})
    labels = {run.path: _label(run, names[run], called) for run in kept}
    return [
        Arm(label, tuple(run for run in kept if labels[run.path] == label)) for label in sorted(set(labels.values()))
    ], remarks


def _once(runs: Iterable[History]) -> tuple[list[History], list[str]]:
    """One run per configuration and seed: the one with most steps, since a repetition is no further sample."""
    found: dict[tuple[str, int], History] = {}
    remarks = []
    for run in sorted(runs, key=_length):
        key = (str(run.config["group"]), run.seed)
        if key in found:
            remarks.append(f"{found[key].path.name} is left out: {run.path.name} has its configuration and seed too")
        found[key] = run
    return sorted(found.values(), key=lambda run: (run.config["created"], run.path.name)), remarks


def _length(run: History) -> tuple[bool, int]:
    return run.finished, max((int(curve.steps[-1]) for curve in run.curves.values()), default=0)


def _telling(runs: Sequence[History]) -> dict[History, tuple[str, ...]]:
    """For each run, the options that tell it from those of its algorithm, whatever their environment."""
    found: dict[History, tuple[str, ...]] = {}
    for algorithm in {run.config["algorithm"] for run in runs}:
        mine = [run for run in runs if run.config["algorithm"] == algorithm]
        told = dict.fromkeys(name for env in {run.env for run in mine} for name in _differing(mine, env))
        found.update(dict.fromkeys(mine, ("algorithm", *sorted(told))))
    return found


def _differing(runs: Sequence[History], env: str) -> list[str]:
    """The options in which the groups of one environment differ; those that someone chose, where they suffice."""
    groups = {str(run.config["group"]): run for run in runs if run.env == env}
    options = [{n: v for n, v in run.config["options"].items() if n not in IDLE} for run in groups.values()]
    known = dict.fromkeys([*options[0], *(name for one in options for name in one if name.startswith(OF_ENV))])
    names = [name for name in known if any(one.get(name) != options[0].get(name) for one in options)]
    origins = [run.config.get("origins", {}) for run in groups.values()]
    chosen = [name for name in names if any(one.get(name) in CHOSEN for one in origins)]
    apart = {json.dumps([one.get(name) for name in chosen]) for one in options}
    return chosen if len(apart) == len(groups) else names


def _label(run: History, names: Sequence[str], called: Mapping[str, str]) -> str:
    values = {**_values(run), "algorithm": called[run.config["algorithm"]]}
    return " ".join(_said(name, values[name]) for name in names if name in values) or "none of these options"


def _refuse_unknown(by: Sequence[str], runs: Sequence[History]) -> None:
    known = {name for run in runs for name in _values(run)}
    for name in by:
        if name not in known:
            raise UsageError(f"no run here has an option '{name}'{did_you_mean(name, known)}")


def _values(run: History) -> Mapping[str, Any]:
    return {"algorithm": run.config["algorithm"], "env": run.env, **run.config["options"]}


def _said(name: str, value: object) -> str:
    if name in ("algorithm", "env"):
        return str(value)
    text = ",".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else value
    return f"{name}={text}"


def _called(algorithms: Set[str]) -> dict[str, str]:
    """`./mine.py:Mine` → `Mine`; `mine.py:Mine` where another is called so too, in any case; an identifier stays."""
    found = {}
    for algorithm in algorithms:
        place, colon, name = algorithm.rpartition(":")
        alike = [one for one in algorithms if one.rpartition(":")[2].casefold() == name.casefold()]
        files = {Path(other.rpartition(":")[0]).name for other in alike}
        found[algorithm] = f"{Path(place).name}:{name}" if colon and len(files) > 1 else name
    return found
