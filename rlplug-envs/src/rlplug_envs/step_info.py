"""Reads the `info` of steps: success and numbers of an episode, and the values of single rows of a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlplug_core.types import Array

#: The types of numbers in `info`, and the most numbers that are kept for an episode.
NUMBER = (bool, int, float, np.bool_, np.integer, np.floating)
MOST_NUMBERS = 32
#: The keys of `info` for the success of an episode.
SUCCESS = ("is_success", "success")


def success(info: Mapping[str, object]) -> bool | None:
    """Return whether a step's `info` reports success; None if it does not say."""
    for key in SUCCESS:
        if key not in info:
            continue
        value = np.asarray(info[key])
        if value.dtype.kind in "biuf" and value.size and np.isfinite(value).all():
            return bool(value.any())
    return None


def episode_numbers(info: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers in a step's `info`, read at the end of an episode."""
    finite: dict[str, float] = {}
    for key, value in list(info.items()):
        if (
            isinstance(value, NUMBER)
            and isinstance(key, str)
            and len(finite) < MOST_NUMBERS
            and _is_finite(value)
        ):
            finite[key] = float(value)
    return finite


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def infos_of_rows(
    info: object,
    rows: Array,
    count: int,
) -> list[Mapping[str, object]]:
    """Return the parts of a vector's `info` that belong to some of its rows.

    Gymnasium marks under `_key` which rows have `key`. Values without one entry for each row are left out. Some
    vectors have a dictionary for each row. Columns are read at once, because thousands of episodes may end in a step.

    Args:
        info: of one step.
        rows: numbers of the rows.
        count: how many rows the vector has.
    """
    if isinstance(info, np.ndarray | list | tuple):
        infos = [info[row] if len(info) == count else None for row in rows.tolist()]
        return [row_info if isinstance(row_info, Mapping) else {} for row_info in infos]
    if not isinstance(info, Mapping):
        return [{} for _ in rows]
    columns = {
        key: value[rows].tolist()
        for key, value in info.items()
        if isinstance(value, np.ndarray) and value.shape == (count,)
    }
    presence = {key: columns.pop(key) for key in [*columns] if key.startswith("_")}
    return [
        {
            key: column[index]
            for key, column in columns.items()
            if f"_{key}" not in presence or presence[f"_{key}"][index]
        }
        for index in range(len(rows))
    ]


def values_of_rows(info: Any, key: str, always: Array) -> list[object]:
    """Return the value of `key` in a vector's `info` for each row; None if a row has none.

    Args:
        info: one dictionary of arrays, with a mask of the rows that have `key` under `_key`, or one for each row.
        always: [N] True.
    """
    rows = len(always)
    if not isinstance(info, Mapping):
        return [row_info.get(key) if isinstance(row_info, Mapping) else None for row_info in info]
    values = info.get(key)
    present = info.get(f"_{key}", always)
    if present is always and isinstance(values, np.ndarray) and values.shape == (rows,):
        return list(values.tolist())
    if values is None or np.ndim(values) == 0 or len(values) != rows:
        return [None] * rows
    return [
        value if is_present else None for value, is_present in zip(values, present, strict=True)
    ]
