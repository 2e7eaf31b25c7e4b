"""Checks observations before they are written into arrays of their space's type: numpy wraps and truncates silently.

Callers compare classes, shapes and types first, and call `fit` only if one differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from rlplug_core.errors import plain
from rlplug_core.types import Array, Obs

Dtype: TypeAlias = np.dtype[Any]

#: The largest number that float32 holds.
LARGEST = float(np.finfo(np.float32).max)
LEAST = -LARGEST
#: If a sum of squares is at most this, no number is NaN, infinite or larger than float32 holds: one product checks all.
#: It is a float64 of numpy, so that a comparison with a float32 does not round it.
SQUARES = np.float64(LARGEST) ** 2
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
#: Types of single integers that arrays of int64 hold unchanged.
INTEGERS = frozenset({int, np.int64, np.int32})


class DtypeMismatch(ValueError):
    """An observation does not fit its space; `index` is that of the wrong number, () for the whole observation."""

    def __init__(self, message: str, index: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.index = index


def arrays(value: object) -> list[Array]:
    """Return the arrays in an observation of dictionaries and tuples, in their order."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [array for part in value for array in arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def fit(
    value: Any,
    shape: tuple[int, ...],
    dtype: Dtype,
    name: str = "",
) -> Array:
    """Return a value as an array of this shape whose numbers an array of `dtype` can hold.

    Floats may be rounded. An array of floats never counts as an array of integers, even if all its values are
    whole; single numbers and lists have no type, so each of their numbers is checked.

    Raises:
        DtypeMismatch: another shape, or numbers that `dtype` does not hold; the message has the `name`.
    """
    if (
        value.__class__ is np.ndarray
        and value.dtype is FLOAT64
        and dtype is FLOAT32
        and value.shape == shape
        and np.vdot(value, value) <= SQUARES
    ):
        return value  # the most frequent case first
    array = value if value.__class__ is np.ndarray else _as_array(value, name)
    if array.shape != shape:
        raise DtypeMismatch(
            f"the observation{name} has shape {array.shape}, its observation space says {shape}"
        )
    if array.dtype != dtype:
        _check_numbers(value, array, dtype, name)
    return array


def _check_numbers(value: Any, array: Array, dtype: Dtype, name: str) -> None:
    """Raise DtypeMismatch if the numbers of a value, as an array of another type, do not fit `dtype`."""
    shape = array.shape
    kind = array.dtype.kind
    target_kind = dtype.kind
    if kind in "biu":
        if target_kind != "f" and not _holds_all(array.dtype, dtype):
            _check_range(array, dtype, name)
    elif kind == "f" and target_kind == "f":
        _check_size(array, name)
    elif kind == "f" and (value.__class__ is not np.ndarray or not shape):
        _check_whole(array, name)
        _check_range(array, dtype, name)
    else:
        text = f"an array of {array.dtype}" if shape else plain(repr(value), 60)
        raise DtypeMismatch(
            f"the observation{name} is {text}, its observation space says {dtype}; give {dtype}, or declare the space "
            "with the bounds and the dtype of these observations"
        )


def _as_array(value: Any, name: str) -> Array:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DtypeMismatch(f"the observation{name} is not an array of numbers: {error}") from None


@lru_cache
def _holds_all(source: Dtype, target: Dtype) -> bool:
    """Return whether `target` holds all numbers of `source`; both are types of whole numbers."""
    return bool(np.can_cast(source, target, "safe"))


def _check_whole(array: Array, name: str) -> None:
    if (is_fractional := array != np.trunc(array)).any():
        index, text = _find_first(array, is_fractional)
        raise DtypeMismatch(
            f"the observation{name} {text}, and its observation space has whole numbers; give one",
            index,
        )


def _check_range(array: Array, dtype: Dtype, name: str) -> None:
    """Raise DtypeMismatch for a number that a type of whole numbers does not hold."""
    low, high = (
        (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    )
    if not array.size or (low <= array.min().item() and array.max().item() <= high):
        return
    # As Python's numbers: numpy compares int64 with uint64 as floats.
    index, text = _find_first(
        array, np.array([not low <= number <= high for number in array.reshape(-1).tolist()])
    )
    raise DtypeMismatch(
        f"the observation{name} {text}, and {dtype}, the type of its observation space, has {low} to {high}; "
        "let observation_space hold all that is given",
        index,
    )


def _check_size(array: Array, name: str) -> None:
    """Raise DtypeMismatch for a float that float32 does not hold."""
    if (is_too_large := ~(np.abs(array) <= np.float64(LARGEST))).any():
        index, text = _find_first(array, is_too_large)
        if not np.isfinite(array[index]):
            raise DtypeMismatch(f"an observation{name} {bad_number_message(array[index])}", index)
        raise DtypeMismatch(
            f"the observation{name} {text}, more than float32 holds; give smaller numbers", index
        )


def _find_first(array: Array, selected: Array) -> tuple[tuple[int, ...], str]:
    """Return the index of the first selected number, and a message about it."""
    index = tuple(np.argwhere(selected.reshape(array.shape))[0].tolist())
    return index, f"{'holds' if index else 'is'} {array[index]}"


def bad_number_message(number: Any) -> str:
    """Return the message about a number that is NaN or infinite."""
    return (
        "is not a number (NaN)"
        if np.isnan(number)
        else f"is infinite ({number}); give finite numbers"
    )


def part(value: Any, name: str) -> Any:
    """Return one part of an observation, which is a dictionary, or a tuple or list."""
    return value[int(name)] if isinstance(value, tuple | list) else value[name]


#: Exceptions of observations that do not fit.
ERRORS = (KeyError, IndexError, TypeError, ValueError, OverflowError)


def find_mismatch(
    target: Obs,
    value: Any,
    batched: bool = False,
    where: str = "",
) -> DtypeMismatch | None:
    """Return how an observation, a batch of N if `batched`, does not fit `target` [N, ...]; None if it does."""
    if isinstance(target, dict):
        for name, inner in target.items():
            try:
                entry = part(value, name)
            except ERRORS:
                return DtypeMismatch(
                    f"the observation lacks the entry '{where}{name}' of its space"
                )
            if mismatch := find_mismatch(inner, entry, batched, f"{where}{name}/"):
                return mismatch
        return None
    try:
        fit(
            value,
            target.shape if batched else target.shape[1:],
            target.dtype,
            f" '{where[:-1]}'" if where else "",
        )
    except DtypeMismatch as mismatch:
        return mismatch
    return None


def bad_float_message(obs: Obs) -> str:
    """Return the message about a float in the observation that is NaN or infinite; "" if there is none."""
    if isinstance(obs, dict):
        return next(filter(None, map(bad_float_message, obs.values())), "")
    if obs.dtype.kind != "f" or (finite := np.isfinite(obs)).all():
        return ""
    return f"an observation {bad_number_message(obs[~finite][0])}"


def count_unusable(obs: Array) -> int:
    """Return how many numbers are NaN or infinite."""
    return int(np.count_nonzero(~np.isfinite(obs)))
