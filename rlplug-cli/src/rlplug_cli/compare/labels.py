"""The labels of a comparison's lines: the algorithm and the options that distinguish runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlplug_cli.compare.files import SOURCES, files_that_differ, readable_options, versions
from rlplug_cli.compare.history import EXTENDED, History
from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.runs import PLACES

#: Origins of options that the user set; others come from presets and defaults.
CHOSEN = ("option", "set", "net", "critic-net", "config", "project")
#: Prefix of arguments of an environment; only runs that set them have them.
OF_ENV = "env."
#: Options that do not change the result of a run.
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
    "hook",
}
#: Names of a run's values that are not options.
WHOLE = ("algorithm", "env")

Values = Mapping[str, Any]


def labels(
    runs: Sequence[History],
    by: Sequence[str] = (),
) -> dict[History, str]:
    """Return the label of each run; with `by`, the values of these options.

    Without `by`, runs that differ only in seed and environment have the same label. It is the algorithm and the options
    that distinguish its runs on an environment: only options that the user set, if these suffice.

    Raises:
        UsageError: no run has an option named in `by`.
    """
    changed = files_that_differ(runs)
    called = _algorithm_names(runs, changed)
    values = {
        run: {
            "algorithm": called[run],
            "env": run.env,
            **readable_options(run),
            **versions(run, changed),
        }
        for run in runs
    }
    known = {name for one in values.values() for name in one}
    for name in by:
        if name not in known:
            raise UsageError(f"no run here has an option '{name}'{did_you_mean(name, known)}")
    names = dict.fromkeys(runs, tuple(by)) if by else _distinguishing_options(runs, values)
    shown = {name for one in names.values() for name in one}
    digits = {name: _digits([one.get(name) for one in values.values()]) for name in shown}
    found = {}
    for run in runs:
        own = [name for name in names[run] if name in values[run]]
        words = [_value_label(name, values[run][name], digits[name]) for name in own]
        found[run] = " ".join(words) or "none of these options"
    return found


def _distinguishing_options(
    runs: Sequence[History],
    values: Mapping[History, Values],
) -> dict[History, tuple[str, ...]]:
    """Return for each run the names that distinguish it from other runs of its algorithm on any environment."""
    found: dict[History, tuple[str, ...]] = {}
    for algorithm in {values[run]["algorithm"] for run in runs}:
        mine = [run for run in runs if values[run]["algorithm"] == algorithm]
        names: set[str] = set()
        for env in {run.env for run in mine}:
            of_env = {run: values[run] for run in mine if run.env == env}
            names.update(_distinguishing_values(of_env))
        found.update(dict.fromkeys(mine, ("algorithm", *sorted(names))))
    return found


def _distinguishing_values(values: Mapping[History, Values]) -> list[str]:
    """Return the names of the values that distinguish the configurations of one environment."""
    every = list(values.values())
    given = (name for one in every for name in one if name.startswith((OF_ENV, SOURCES)))
    known = [name for name in dict.fromkeys([*every[0], *given]) if name not in (*IDLE, *WHOLE)]
    first = every[0]
    names = [name for name in known if any(one.get(name) != first.get(name) for one in every)]
    further = [name for name in names if name == EXTENDED or name.startswith(SOURCES)]
    options = [name for name in names if name not in further]
    by_hand = {
        name
        for run in values
        for name, origin in run.config.get("origins", {}).items()
        if origin in CHOSEN
    }
    if any(run.options[EXTENDED] != "none" for run in values):
        by_hand.add("total_timesteps")
    chosen = [name for name in options if name in by_hand]
    apart = _count_configurations(every, names)
    for found in (chosen, [*chosen, *further], options):
        if _count_configurations(every, found) == apart:
            return found
    return names


def _count_configurations(
    values: Sequence[Values],
    names: Sequence[str],
) -> int:
    """Return the number of configurations that these values distinguish."""
    rows = ([one.get(name) for name in names] for one in values)
    return len({json.dumps(row) for row in rows})


def _value_label(name: str, value: object, digits: int) -> str:
    if name in WHOLE or name.startswith(SOURCES):
        return str(value)
    if isinstance(value, list):
        return f"{name}={','.join(map(str, value)) or 'none'}"
    return f"{name}={f'{value:.{digits}g}' if isinstance(value, float) else value}"


def _digits(values: Sequence[object]) -> int:
    """Return the number of digits, at least six, that distinguishes numbers, also from integers: 0.9999999 is not 1."""
    numbers = {value for value in values if isinstance(value, float)}
    for digits in range(6, 17):
        rounded = {value: float(f"{value:.{digits}g}") for value in numbers}
        whole = any(near.is_integer() and not value.is_integer() for value, near in rounded.items())
        if not whole and len({*rounded.values()}) == len(numbers):
            return digits
    return 17


def _algorithm_names(
    runs: Sequence[History],
    changed: set[tuple[str, str]],
) -> dict[History, str]:
    """Return the name of each run's algorithm: `Mine` for `./mine.py:Mine`; an id stays.

    If two have the same name, ignoring case, it is `mine.py:Mine` with as many directories as distinguish them. If the
    file changed between runs, it is `mine-851cb68d.py:Mine`.
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
        file = Path(_unique_suffix(place, [other for other, _, _ in alike]))
        version = versions(run, changed).get(f"{SOURCES}algorithm", "")
        far = colon and (len(alike) > 1 or version)
        found[run] = f"{file.with_name(version) if version else file}:{name}" if far else name
    return found


def _unique_suffix(place: str, others: Sequence[str]) -> str:
    """Return the shortest end of a path, in whole names, that no other path has."""
    parts = Path(place).parts
    for count in range(1, len(parts)):
        end = parts[-count:]
        alike = [other for other in others if Path(other).parts[-count:] == end]
        if len(alike) == 1:
            return str(Path(*end))
    return place and str(Path(*parts))
