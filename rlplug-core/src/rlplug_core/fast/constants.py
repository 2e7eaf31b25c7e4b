"""Constant arrays from a cache; they are read-only."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rlplug_core.types import Array


@lru_cache(maxsize=16)
def ones(count: int, dtype: np.dtype[np.generic]) -> Array:
    """Return an array [count] of ones; the dot product with it computes a sum."""
    return _read_only(np.ones(count, dtype))


@lru_cache(maxsize=16)
def zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Return an array of zeros; `np.maximum` with it takes a third of the time that it takes with a number."""
    return _read_only(np.zeros(shape, dtype))


@lru_cache(maxsize=16)
def row_numbers(count: int) -> Array:
    """Return the numbers [count] from 0."""
    return _read_only(np.arange(count))


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
