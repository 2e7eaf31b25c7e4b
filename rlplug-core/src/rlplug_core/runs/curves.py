"""The curves of a run as columns, read from its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlplug_core.runs.journal import Record, read

#: The kinds of records that curves are made of.
KINDS = ("metrics", "evaluation")


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of a run over env steps.

    Attributes:
        steps: `[T]` int64, rising; of a step that was recorded twice, as by a run that was resumed, the last.
        values: `[T]` float64.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def curves(journal: Path, only: Collection[str] = ()) -> dict[str, Curve]:
    """The metrics of a journal by name, `only` those named if any are."""
    return curves_of(read(journal, kinds=KINDS), only)


def curves_of(records: Iterable[Record], only: Collection[str] = ()) -> dict[str, Curve]:
    """The metrics among `records` by name; records of other kinds are passed over."""
    columns: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in only}
    for record in records:
        if record.kind not in KINDS:
            continue
        data = record.data
        for name in only or data:
            value = data.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                steps, values = (
                    columns[name] if name in columns else columns.setdefault(name, ([], []))
                )
                steps.append(record.step)
                values.append(value)
    return {name: _curve(*column) for name, column in columns.items() if column[0]}


def _curve(steps: list[int], values: list[float]) -> Curve:
    """The points in the order of their steps, one per step."""
    step = np.array(steps, np.int64)
    value = np.array(values, np.float64)
    if (np.diff(step) > 0).all():
        return Curve(step, value)
    unique, place = np.unique(step[::-1], return_index=True)
    return Curve(unique, value[::-1][place])
