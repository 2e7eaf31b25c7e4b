"""Actions of any space as one array [N, ...]: a Dict has columns for its parts. Also the choices of an action mask.

The parts of a Dict and of Dicts in it are columns [N, k] of float32 in the order of the space: one column for a
Discrete, one for each number of other spaces. Buffers and agents see only such actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import getitem
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.errors import UsageError
from rlplug_core.types import Array, Space, Spec, tree_map

#: A bound beyond this counts as infinite: some environments write the largest float.
UNBOUNDED = 1e30


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a Dict: its keys, the outermost first, its space, and its columns in the array."""

    keys: tuple[str, ...]
    space: Space
    columns: slice


def scale_and_shift(space: spaces.Box) -> tuple[Array, Array, Array]:
    """Return the scale and shift from [-1, 1] to the bounds of a Box.

    Returns:
        For each number whether both bounds are finite, the scale and the shift in float64; 1 and 0 without bounds.
    """
    low = space.low.astype(np.float64)
    high = space.high.astype(np.float64)
    bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED)
    with np.errstate(invalid="ignore", over="ignore"):
        return (
            bounded,
            np.where(bounded, (high - low) / 2, 1.0),
            np.where(bounded, (high + low) / 2, 0.0),
        )


def parts(space: Space) -> list[Part]:
    """Return the parts of a Dict that are not Dicts, in the order of their columns."""
    result: list[Part] = []
    end = 0
    for keys, leaf in _leaves(space, ()):
        start = end
        end = end + prod(leaf.shape or ())
        result.append(Part(keys, leaf, slice(start, end)))
    return result


def shape_of(space: Space) -> tuple[int, ...]:
    """Return the shape of one action."""
    if isinstance(space, spaces.Dict):
        return (sum(prod(leaf.shape or ()) for _, leaf in _leaves(space, ())),)
    return tuple(space.shape or ())


def dtype_of(space: Space) -> np.dtype[Any]:
    """Return the dtype of an action: float32 for a Box of any dtype, because networks compute in it."""
    return np.dtype(np.float32 if isinstance(space, spaces.Dict | spaces.Box) else space.dtype)


def split(space: Space, action: Array) -> Any:
    """Return actions [N, ...] as nested dictionaries of arrays [N, ...] with the shapes and types of the spaces."""
    if not isinstance(space, spaces.Dict):
        return action
    tree: dict[str, Any] = {}
    for part in parts(space):
        branch = tree
        for key in part.keys[:-1]:
            branch = branch.setdefault(key, {})
        columns = action[:, part.columns].reshape(len(action), *(part.space.shape or ()))
        branch[part.keys[-1]] = columns.astype(part.space.dtype)
    return tree


def join(space: Space, tree: Any) -> Array:
    """Return the inverse of `split`."""
    if not isinstance(space, spaces.Dict):
        return np.asarray(tree)
    columns = []
    for part in parts(space):
        leaf = reduce(getitem, part.keys, tree)
        columns.append(np.reshape(leaf, (len(leaf), -1)).astype(np.float32))
    return np.concatenate(columns, 1)


def sample(space: Space, num_envs: int) -> Array:
    """Draw random actions [num_envs, ...] with the space's own generator."""
    drawn = [
        tree_map(lambda value: np.asarray(value)[None], space.sample()) for _ in range(num_envs)
    ]
    return np.concatenate([join(space, action) for action in drawn])


def sample_legal(space: Space, mask: Array) -> Array:
    """Draw random actions [rows, ...], uniformly from the choices that `mask` [rows, C] allows, or from all."""
    actions = sample(space, len(mask))
    for column, allowed in _columns(space, mask):
        counts = allowed.sum(1)
        rank = (space.np_random.random(len(mask)) * counts).astype(np.int64)
        drawn = (allowed.cumsum(1) > rank[:, None]).argmax(1)
        numbers = actions.reshape(len(actions), -1)[:, column]  # a view
        numbers[counts > 0] = drawn[counts > 0]
    return actions


def legal(space: Space, action: Array, mask: Array) -> Array:
    """Replace each choice that `mask` [N, ...] forbids by the next allowed one, cyclically; return actions [N, ...].

    A mask has one entry for each of the `choices`. If it allows none, the choice does not change.
    """
    columns = action.reshape(len(action), -1).copy()
    for column, allowed in _columns(space, mask):
        size = allowed.shape[1]
        following = (columns[:, [column]].astype(np.int64) + np.arange(size)) % size
        nearest = np.take_along_axis(allowed, following, 1).argmax(1)
        columns[:, column] = following[np.arange(len(columns)), nearest]
    return columns.reshape(action.shape)


def rows_without_choice(space: Space, mask: Array) -> Array:
    """Return the rows [N] of a mask [N, ...] with a choice that has no allowed value."""
    without_choice = np.zeros(len(mask), np.bool_)
    for _, allowed in _columns(space, mask):
        without_choice |= ~allowed.any(1)
    return without_choice


def _columns(space: Space, mask: Array) -> Iterator[tuple[int, Array]]:
    """Yield the column of each choice in an action, and which of its values a mask allows [N, size]."""
    allowed = mask.reshape(len(mask), -1) != 0
    end = 0
    for part in parts(space):
        for column, size in enumerate(_sizes(part.space), part.columns.start):
            start = end
            end = end + size
            yield column, allowed[:, start:end]


def row_of(tree: Any, row: int) -> object:
    """Return one row of dictionaries and tuples of arrays [N, ...], as an environment takes an action."""
    if isinstance(tree, dict):
        return {key: row_of(part, row) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row_of(part, row) for part in tree)
    return tree[row]


def choices(space: Space) -> int:
    """Return the length of an action mask: the number of values of all choices in Discrete and MultiDiscrete parts."""
    return sum(sum(_sizes(leaf)) for _, leaf in _leaves(space, ()))


def _sizes(space: Space) -> list[int]:
    """Return the number of values of each choice in an action."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    return (
        [int(size) for size in space.nvec.flat] if isinstance(space, spaces.MultiDiscrete) else []
    )


def _leaves(
    space: Space,
    keys: tuple[str, ...],
) -> Iterator[tuple[tuple[str, ...], Space]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*keys, key))
    else:
        yield keys, space


def check_actions(algorithm: type[object], spec: Spec) -> None:
    """Check an action space against an algorithm's `actions`; a class without them accepts every space.

    Raises:
        UsageError: the algorithm does not support this space.
    """
    actions = getattr(algorithm, "actions", ())
    kind = type(spec.action).__name__
    if actions and kind not in actions:
        needed = ", ".join(actions[:-1]) + " or " * (len(actions) > 1) + actions[-1]
        notes = {
            "Dict": ", which a Tuple is as well",
            "MultiDiscrete": ", which a Box of integers is as well",
        }
        given = kind + notes.get(kind, "")
        raise UsageError(
            f"{algorithm.__name__} needs {needed} actions and {spec.id} has {given}; "
            f"'rlplug list --actions {kind}' shows those that take {kind}"
        )
