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
SET_BY_USER = ("option", "set", "net", "critic-net", "config", "project")
#: Prefix of arguments of an environment; only runs that set them have them.
ENV_ARGUMENT = "env."
#: Options that do not change the result of a run.
WITHOUT_EFFECT = PLACES | {
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
#: The values of a run that are not options.
NAMES = ("algorithm", "env")

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
    algorithm_names = _algorithm_names(runs, changed)
    values = {
        run: {
            "algorithm": algorithm_names[run],
            "env": run.env,
            **readable_options(run),
            **versions(run, changed),
        }
        for run in runs
    }
    known = {name for entry in values.values() for name in entry}
    for name in by:
        if name not in known:
            raise UsageError(f"no run here has an option '{name}'{did_you_mean(name, known)}")
    names = dict.fromkeys(runs, tuple(by)) if by else _distinguishing_options(runs, values)
    shown_names = {name for entry in names.values() for name in entry}
    digits = {name: _digits([entry.get(name) for entry in values.values()]) for name in shown_names}
    result = {}
    for run in runs:
        present = [name for name in names[run] if name in values[run]]
        words = [_value_label(name, values[run][name], digits[name]) for name in present]
        result[run] = " ".join(words) or "none of these options"
    return result


def _distinguishing_options(
    runs: Sequence[History],
    values: Mapping[History, Values],
) -> dict[History, tuple[str, ...]]:
    """Return for each run the names that distinguish it from other runs of its algorithm on any environment."""
    result: dict[History, tuple[str, ...]] = {}
    for algorithm in {values[run]["algorithm"] for run in runs}:
        same_algorithm = [run for run in runs if values[run]["algorithm"] == algorithm]
        names: set[str] = set()
        for env in {run.env for run in same_algorithm}:
            of_env = {run: values[run] for run in same_algorithm if run.env == env}
            names.update(_distinguishing_values(of_env))
        result.update(dict.fromkeys(same_algorithm, ("algorithm", *sorted(names))))
    return result


def _distinguishing_values(values: Mapping[History, Values]) -> list[str]:
    """Return the names of the values that distinguish the configurations of one environment.

    It tries in turn the options that the user set, those with extensions and files, all options, and all values.
    """
    rows = list(values.values())
    optional = (name for row in rows for name in row if name.startswith((ENV_ARGUMENT, SOURCES)))
    known = [
        name
        for name in dict.fromkeys([*rows[0], *optional])
        if name not in (*WITHOUT_EFFECT, *NAMES)
    ]
    first = rows[0]
    names = [name for name in known if any(row.get(name) != first.get(name) for row in rows)]
    extra = [name for name in names if name == EXTENDED or name.startswith(SOURCES)]
    options = [name for name in names if name not in extra]
    by_hand = {
        name
        for run in values
        for name, origin in run.config.get("origins", {}).items()
        if origin in SET_BY_USER
    }
    if any(run.options[EXTENDED] != "none" for run in values):
        by_hand.add("total_timesteps")
    chosen = [name for name in options if name in by_hand]
    total = _count_configurations(rows, names)
    for candidate in (chosen, [*chosen, *extra], options):
        if _count_configurations(rows, candidate) == total:
            return candidate
    return names


def _count_configurations(
    values: Sequence[Values],
    names: Sequence[str],
) -> int:
    """Return the number of configurations that these values distinguish."""
    rows = ([entry.get(name) for name in names] for entry in values)
    return len({json.dumps(row) for row in rows})


def _value_label(name: str, value: object, digits: int) -> str:
    if name in NAMES or name.startswith(SOURCES):
        return str(value)
    if isinstance(value, list):
        return f"{name}={','.join(map(str, value)) or 'none'}"
    return f"{name}={f'{value:.{digits}g}' if isinstance(value, float) else value}"


def _digits(values: Sequence[object]) -> int:
    """Return how many digits, at least six, distinguish the numbers, also from integers: 0.9999999 is not 1."""
    numbers = {value for value in values if isinstance(value, float)}
    for digits in range(6, 17):
        rounded = {value: float(f"{value:.{digits}g}") for value in numbers}
        has_new_integers = any(
            near.is_integer() and not value.is_integer() for value, near in rounded.items()
        )
        if not has_new_integers and len({*rounded.values()}) == len(numbers):
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
    result = {}
    for run in runs:
        place, colon, name = run.algorithm.rpartition(":")
        same_name = [
            algorithm.rpartition(":")
            for algorithm in names
            if algorithm.rpartition(":")[2].casefold() == name.casefold()
        ]
        file = Path(_unique_suffix(place, [path for path, _, _ in same_name]))
        version = versions(run, changed).get(f"{SOURCES}algorithm", "")
        is_ambiguous = colon and (len(same_name) > 1 or version)
        result[run] = (
            f"{file.with_name(version) if version else file}:{name}" if is_ambiguous else name
        )
    return result


def _unique_suffix(place: str, paths: Sequence[str]) -> str:
    """Return the shortest end of a path, in whole names, that no other path has."""
    names = Path(place).parts
    for count in range(1, len(names)):
        end = names[-count:]
        same_end = [path for path in paths if Path(path).parts[-count:] == end]
        if len(same_end) == 1:
            return str(Path(*end))
    return place and str(Path(*names))
