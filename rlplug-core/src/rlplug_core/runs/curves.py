"""The curves of a run, read from its journal into columns."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlplug_core.loop.episode_stats import INFO
from rlplug_core.runs.journal import Record, read

if TYPE_CHECKING:
    from rlplug_core.types import Array


#: The kinds of records that hold metrics.
KINDS = ("metrics", "evaluation")
#: The columns of `episodes` in the journal.
EPISODES = ("steps", "returns", "lengths", "workers")


def columns(journal: Path, *names: str) -> dict[str, Array]:
    """Return metrics [R] by name, and their env steps [R] as `step`; a metric that was not recorded at a step is NaN.

    `pandas.DataFrame(columns(path))` has one row for each step with a record. If a resume repeated steps, the new
    records count.

    Args:
        names: only these metrics, and only the steps that have one of them; default: all.
    """
    by_name = curves(journal, names)
    steps = np.unique(
        np.concatenate([np.empty(0, np.int64), *(metric.steps for metric in by_name.values())])
    )
    table = {"step": steps, **{name: np.full(len(steps), np.nan) for name in names or by_name}}
    for name, curve in by_name.items():
        table[name][np.searchsorted(steps, curve.steps)] = curve.values
    return table


def curve(
    journal: Path,
    name: str = "eval/return_mean",
) -> tuple[Array, Array]:
    """Return the env steps [R] with a record of a metric, and its values [R]."""
    table = columns(journal, name)
    return table["step"], table[name]


def episodes(journal: Path) -> dict[str, Array]:
    """Return every training episode: the env step of its end, return, length and worker, [E] each.

    `info/NAME` are the numbers in an episode's last `info`; NaN if they were missing.
    """
    records = list(read(journal, kinds=("episodes",)))
    info_names = dict.fromkeys(
        name for record in records for name in record.data if name.startswith(INFO)
    )
    table: dict[str, list[float | None]] = {name: [] for name in (*EPISODES, *info_names)}
    for record in records:
        blanks = [None] * len(record.data["steps"])
        for name, values in table.items():
            values += record.data.get(name, blanks)
    integers = {"steps", "lengths", "workers"}
    return {
        name: np.array(values, np.int64 if name in integers else float)
        for name, values in table.items()
    }


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of a run over env steps.

    Attributes:
        steps: `[T]` int64, increasing; of two records at one step, as after a resume, the last counts.
        values: `[T]` float64.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def curves(journal: Path, only: Collection[str] = ()) -> dict[str, Curve]:
    """Return the metrics of a journal by name; only those in `only`, unless it is empty."""
    return curves_of(read(journal, kinds=KINDS), only)


def curves_of(
    records: Iterable[Record],
    only: Collection[str] = (),
) -> dict[str, Curve]:
    """Return the metrics among `records` by name; other kinds of records are skipped."""
    columns = {name: (array("q"), array("d")) for name in only}
    for record in records:
        if record.kind not in KINDS:
            continue
        data = record.data
        for name in only or data:
            value = data.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if name not in columns:
                    columns[name] = (array("q"), array("d"))
                steps, values = columns[name]
                steps.append(record.step)
                values.append(value)
    return {name: _curve(*column) for name, column in columns.items() if column[0]}


def _curve(steps: array[int], values: array[float]) -> Curve:
    """Return a curve in the order of its steps, with one value per step."""
    step = np.array(steps, np.int64)
    value = np.array(values, np.float64)
    if (np.diff(step) > 0).all():
        return Curve(step, value)
    unique, last = np.unique(step[::-1], return_index=True)
    return Curve(unique, value[::-1][last])
