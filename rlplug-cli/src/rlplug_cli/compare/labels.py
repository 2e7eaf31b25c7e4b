"""The labels of a comparison's lines: the algorithm and, of what differs between runs, what tells them apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlplug_cli.compare.files import SOURCES, named, several, versions
from rlplug_cli.compare.history import EXTENDED, History
from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.runs.directory import PLACES

#: Origins of options that someone chose; others come from presets and defaults.
CHOSEN = ("option", "set", "net", "config")
#: What options of an environment begin with, which are there only where somebody gave them.
OF_ENV = "env."
#: Options that say how a run is done and not what it is.
IDLE = PLACES | {
    "seed",
    "device",
    "actor_device",
    "threads",
    "keep_checkpoints",
    "worker_timeout",
    "compile",
    "cudagraphs",
    "log",
}
#: What a run is told by beside its options.
WHOLE = ("algorithm", "env")

Values = Mapping[str, Any]


def labels(runs: Sequence[History], by: Sequence[str] = ()) -> dict[History, str]:
    """The label of each run; with `by`, the values of these options.

    Without, two runs have the same one where they differ in seed and environment alone. It is the algorithm and, of
    what differs within an environment, what tells its runs apart: options that someone chose, where they suffice.

    Raises:
        UsageError: no run has an option named in `by`.
    """
    changed = several(runs)
    called = _called(runs, changed)
    values = {
        run: {"algorithm": called[run], "env": run.env, **named(run), **versions(run, changed)}
        for run in runs
    }
    _refuse_unknown(by, values)
    names = dict.fromkeys(runs, tuple(by)) if by else _telling(runs, values)
    shown = {name for one in names.values() for name in one}
    digits = {name: _digits([one.get(name) for one in values.values()]) for name in shown}
    return {run: _label(names[run], values[run], digits) for run in runs}


def _label(names: Sequence[str], values: Values, digits: Mapping[str, int]) -> str:
    said = (_said(name, values[name], digits[name]) for name in names if name in values)
    return " ".join(said) or "none of these options"


def _refuse_unknown(by: Sequence[str], values: Mapping[History, Values]) -> None:
    known = {name for one in values.values() for name in one}
    for name in by:
        if name not in known:
            raise UsageError(f"no run here has an option '{name}'{did_you_mean(name, known)}")


def _telling(
    runs: Sequence[History], values: Mapping[History, Values]
) -> dict[History, tuple[str, ...]]:
    """For each run, what tells it from those of its algorithm, whatever their environment."""
    found: dict[History, tuple[str, ...]] = {}
    for algorithm in {values[run]["algorithm"] for run in runs}:
        mine = [run for run in runs if values[run]["algorithm"] == algorithm]
        told = dict.fromkeys(
            name
            for env in {run.env for run in mine}
            for name in _differing({run: values[run] for run in mine if run.env == env})
        )
        found.update(dict.fromkeys(mine, ("algorithm", *sorted(told))))
    return found


def _differing(values: Mapping[History, Values]) -> list[str]:
    """The names of the values that tell the configurations of one environment apart."""
    every = list(values.values())
    given = (name for one in every for name in one if name.startswith((OF_ENV, SOURCES)))
    known = [name for name in dict.fromkeys([*every[0], *given]) if name not in (*IDLE, *WHOLE)]
    names = [name for name in known if any(one.get(name) != every[0].get(name) for one in every)]
    further = [name for name in names if name == EXTENDED or name.startswith(SOURCES)]
    options = [name for name in names if name not in further]
    chosen = [name for name in options if any(_chosen(run, name) for run in values)]
    apart = _distinct(every, names)
    for found in (chosen, [*chosen, *further], options):
        if _distinct(every, found) == apart:
            return found
    return names


def _chosen(run: History, name: str) -> bool:
    """Return whether someone chose an option's value, be it when the run went on."""
    moved = name == "total_timesteps" and run.options[EXTENDED] != "none"
    return moved or run.config.get("origins", {}).get(name) in CHOSEN


def _distinct(values: Sequence[Values], names: Sequence[str]) -> int:
    """Return how many configurations these values tell apart."""
    return len({json.dumps([one.get(name) for name in names]) for one in values})


def _said(name: str, value: object, digits: int) -> str:
    if name in WHOLE or name.startswith(SOURCES):
        return str(value)
    if isinstance(value, list):
        return f"{name}={','.join(map(str, value)) or 'none'}"
    return f"{name}={f'{value:.{digits}g}' if isinstance(value, float) else value}"


def _digits(values: Sequence[object]) -> int:
    """Return how many digits, six or more, tell numbers apart, and from whole ones: 0.9999999 is not 1."""
    numbers = {value for value in values if isinstance(value, float)}
    for digits in range(6, 17):
        rounded = {value: float(f"{value:.{digits}g}") for value in numbers}
        whole = any(near.is_integer() and not value.is_integer() for value, near in rounded.items())
        if not whole and len({*rounded.values()}) == len(numbers):
            return digits
    return 17


def _called(runs: Sequence[History], changed: set[tuple[str, str]]) -> dict[History, str]:
    """`./mine.py:Mine` → `Mine`; an identifier stays.

    `mine.py:Mine` where another is called so too, in any case, with the folders that it takes to tell them apart; and
    `mine-851cb68d.py:Mine` where the file was changed between runs.
    """
    names = {run.algorithm for run in runs}
    found = {}
    for run in runs:
        place, colon, name = run.algorithm.rpartition(":")
        alike = [
            one.rpartition(":")
            for one in names
            if one.rpartition(":")[2].casefold() == name.casefold()
        ]
        file = Path(_ending(place, [other for other, _, _ in alike]))
        version = versions(run, changed).get(f"{SOURCES}algorithm", "")
        far = colon and (len(alike) > 1 or version)
        found[run] = f"{file.with_name(version) if version else file}:{name}" if far else name
    return found


def _ending(place: str, others: Sequence[str]) -> str:
    """The shortest end of a path, in whole names, that no other has."""
    parts = Path(place).parts
    ends = (parts[-count:] for count in range(1, len(parts)))
    apart = (
        end for end in ends if sum(Path(other).parts[-len(end) :] == end for other in others) == 1
    )
    return str(Path(*next(apart, parts)))
