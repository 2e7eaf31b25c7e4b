"""Columns of what a run's journal recorded: the way to tables, plots and comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlplug_core.loop.episode_stats import INFO
from rlplug_core.runs.journal import Record, read
from rlplug_core.types import Array

#: The kinds of records that hold metrics.
KINDS = ("metrics", "evaluation")
#: The columns of `episodes`, as the journal has them.
EPISODES = ("steps", "returns", "lengths", "workers")


def columns(journal: Path, *names: str) -> dict[str, Array]:
    """Metrics [R] by name, on the env steps in `step` [R]; NaN where one was not recorded.

    `pandas.DataFrame(columns(path))` is a table of a row for each step at which something was recorded. What a resumed
    run recorded again replaces what was there.

    Args:
        names: only these metrics, and only the steps that have one of them; all without.
    """
    table: dict[int, dict[str, float]] = {}
    for record in _recorded(journal):
        numbers = {
            key: float(value) for key, value in record.data.items() if _counts(key, value, names)
        }
        if numbers:
            table.setdefault(record.step, {}).update(numbers)
    found = names or dict.fromkeys(name for row in table.values() for name in row)
    rows = [row for _, row in sorted(table.items())]
    metrics = {name: np.array([row.get(name, np.nan) for row in rows]) for name in found}
    return {"step": np.array(sorted(table), np.int64), **metrics}


def curve(journal: Path, name: str = "eval/return_mean") -> tuple[Array, Array]:
    """The env steps [R] at which a metric was recorded, and its values [R]."""
    found = columns(journal, name)
    return found["step"], found[name]


def episodes(journal: Path) -> dict[str, Array]:
    """Every training episode: the env step of its end, return, length and worker, [E] each.

    `info/NAME` are the numbers that an environment's last `info` said; NaN where it did not.
    """
    kept = list(read(journal, kinds=("episodes",))) if journal.exists() else []
    said = dict.fromkeys(name for record in kept for name in record.data if name.startswith(INFO))
    found: dict[str, list[float | None]] = {name: [] for name in (*EPISODES, *said)}
    for record in kept:
        nothing = [None] * len(record.data["steps"])
        for name, values in found.items():
            values += record.data.get(name, nothing)
    whole = {"steps", "lengths", "workers"}
    return {
        name: np.array(values, np.int64 if name in whole else float)
        for name, values in found.items()
    }


def _recorded(journal: Path) -> list[Record]:
    return [record for record in read(journal) if record.kind in KINDS] if journal.exists() else []


def _counts(key: str, value: object, names: tuple[str, ...]) -> bool:
    """Return whether this is a metric, and one that was asked for."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (not names or key in names)
    )
