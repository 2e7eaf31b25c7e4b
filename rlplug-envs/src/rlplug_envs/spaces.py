"""Map an environment's spaces to those inside rlplug: canonical observations and actions, and the way back.

Observations are arrays or nested dictionaries of arrays; a Tuple becomes a dictionary keyed "0", "1", …, and float64
becomes float32. Actions are canonical: Discrete counts from 0, Box is in [-1, 1] if its bounds are finite,
and a Dict or Tuple is a Dict with its parts concatenated in one array (`rlplug_core.nets.actions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_core.errors import BadEnv, plain
from rlplug_core.nets.actions import UNBOUNDED, dtype_of, scale_and_shift, shape_of
from rlplug_core.types import MASK, Array, Obs, Space
from rlplug_envs.observation_dtypes import ERRORS, INTEGERS, find_mismatch, fit, part

INT64 = np.dtype(np.int64)
#: The most integers that a dimension of a Box of actions may have.
MOST_CHOICES = 1_000


class View:
    """One row's spaces as agents see them, and the conversion to them.

    Args:
        obs, action: the environment's spaces.
        info: the `info` of its first reset; a mask of allowed actions in it is added to the observation, which becomes
            a dictionary, `{"obs": …, "action_mask": …}` if it was an array.
        batched: whether `info` is that of all rows.
        id: the environment's name in messages.

    Attributes:
        obs, action: the canonical spaces.
        to_env: converts canonical actions [N, ...] to the environment's; None if they are the same.
        masked: whether the mask comes from `info`.
    """

    def __init__(
        self,
        obs: Space,
        action: Space,
        info: Mapping[str, object],
        id: str,
        batched: bool = False,
    ) -> None:
        self.id = id
        self.obs = canonical_obs(obs, id)
        self.action, self.to_env = canonical_action(action, id)
        for noun, space in (("observations", self.obs), ("actions", self.action)):
            if not spaces.utils.flatdim(space):
                raise BadEnv(
                    f"{id}: {noun} of its space {plain(str(space), 60)} contain no number; give at least one"
                )
        nested = isinstance(self.obs, spaces.Dict)
        self.masked = MASK in info and not masked(self.obs)
        self._wrapped = self.masked and not nested
        self._batched = batched
        self._shape: tuple[int, ...] = ()
        if self.masked:
            shape = self._shape = self._mask_shape(info, batched)
            inner = (
                dict(self.obs.spaces) if isinstance(self.obs, spaces.Dict) else {"obs": self.obs}
            )
            self.obs = spaces.Dict(
                {**inner, MASK: spaces.MultiBinary(shape if len(shape) > 1 else shape[0])}
            )

    def _mask_shape(
        self,
        info: Mapping[str, object],
        batched: bool,
    ) -> tuple[int, ...]:
        """Return the shape of one environment's mask."""
        try:
            mask = np.asarray(info[MASK])
        except ValueError:  # arrays of different lengths
            mask = np.asarray(None)
        if mask.dtype.kind not in "biuf" or mask.ndim < 1 + batched:
            raise BadEnv(
                f"{self.id}: info['{MASK}'] is not an array of numbers; give one array with an entry for each choice, "
                "those of all parts of an action side by side"
            )
        return mask.shape[1:] if batched else mask.shape

    def action_shape(self, num_envs: int) -> tuple[int, ...]:
        return (num_envs, *shape_of(self.action))

    def translate(self, action: Array) -> Any:
        """Return canonical actions [N, ...] in the form that the environment takes."""
        return action if self.to_env is None else self.to_env(action)

    def body(self, obs: Obs) -> Obs:
        """Return the part of a canonical observation that is the environment's own observation."""
        if self._wrapped:
            return obs["obs"]
        if not self.masked:
            return obs
        return {name: inner for name, inner in obs.items() if name != MASK}

    def mask(self, info: Mapping[str, object], ended: bool) -> Any:
        """Return the mask in `info`; after the end of an episode it may be absent, and all actions are allowed."""
        if MASK not in info and not ended:
            raise missing_mask_error(self.id)
        if MASK in info and (shape := self._mask_shape(info, self._batched)) != self._shape:
            raise BadEnv(
                f"{self.id}: info['{MASK}'] has shape {shape}, and in the first reset it had {self._shape}; give an "
                "entry for each choice in every step, 0 if it is forbidden"
            )
        return self._to_booleans(info[MASK]) if MASK in info else True

    def _to_booleans(self, mask: object) -> Array:
        """Return a mask as booleans: every number that is not 0 allows a choice.

        Raises:
            BadEnv: a number is NaN or negative, as in masks that are added to logits.
        """
        numbers = np.asarray(mask)
        if numbers.dtype != np.bool_ and not (numbers >= 0).all():
            bad_number = numbers[~(numbers >= 0)].reshape(-1)[0]
            raise BadEnv(
                f"{self.id}: info['{MASK}'] holds {bad_number:g}; give 1 for each choice that is allowed, 0 for others"
            )
        return numbers != 0


def missing_mask_error(where: str) -> BadEnv:
    """Return the error for a step without its mask."""
    return BadEnv(
        f"{where}: info has no '{MASK}' in the middle of an episode, though its reset gave one"
    )


def masked(space: Space) -> bool:
    """Return whether observations of this space hold a mask."""
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def canonical_obs(space: Space, id: str) -> Space:
    """Return the observation space as agents see it; raise BadEnv unless its parts are arrays of fixed shape."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return spaces.Dict(
            {
                str(name): canonical_obs(sub, id)
                for name, sub in inner_spaces(space)
                if not is_empty(sub)
            }
        )
    if isinstance(space, spaces.Box) and space.dtype.kind == "f" and space.dtype != np.float32:
        with np.errstate(over="ignore"):
            low = space.low.astype(np.float32)
            high = space.high.astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    check_space(space, "observation_space", id)
    raise BadEnv(
        f"{id}: observations of type {type(space).__name__} have no fixed shape; "
        "wrap the environment so that it gives Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple observations"
    )


def inner_spaces(space: spaces.Dict | spaces.Tuple[object]) -> Iterable[tuple[object, Any]]:
    """Return the parts of a space with their keys or numbers."""
    return enumerate(space.spaces) if isinstance(space, spaces.Tuple) else space.spaces.items()


def is_empty(space: object) -> bool:
    """Return whether a space is a Dict or Tuple without parts, or with parts that are all empty."""
    return isinstance(space, spaces.Dict | spaces.Tuple) and all(
        is_empty(part) for _, part in inner_spaces(space)
    )


def check_space(space: object, name: str, id: str) -> None:
    """Raise BadEnv if the attribute `name` of an environment is not a space of Gymnasium."""
    if not isinstance(space, gymnasium.Space):
        kind = "None" if space is None else f"of type {type(space).__name__}"
        old = " of the old package gym" if type(space).__module__.startswith("gym.") else ""
        raise BadEnv(
            f"{id}: {name} is {kind}{old}; set it to a space of gymnasium.spaces before reset() is called"
        )


def canonical_action(
    space: Space,
    id: str,
) -> tuple[Space, Callable[[Array], object] | None]:
    """Return the canonical action space, and a function from its actions to the environment's; None if they agree."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        converter = PartsConverter(space, id)
        return converter.canonical, converter
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n)), _number_converter(space)
    if isinstance(space, spaces.MultiDiscrete):
        offset = space.start.astype(space.dtype)
        return spaces.MultiDiscrete(space.nvec), lambda action: action.astype(offset.dtype) + offset
    if isinstance(space, spaces.MultiBinary):
        return space, lambda action: action.astype(np.int8)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        rescale = Rescale(space)
        return rescale.canonical, rescale
    if isinstance(space, spaces.Box) and space.dtype.kind in "iub":
        return canonical_integers(space, id)
    check_space(space, "action_space", id)
    raise BadEnv(
        f"{id}: actions of type {type(space).__name__} are not supported; "
        "wrap the environment so that it takes Discrete, MultiDiscrete, MultiBinary or Box actions, or Dicts and "
        "Tuples of these"
    )


def canonical_integers(
    space: spaces.Box,
    id: str,
) -> tuple[Space, Callable[[Array], object]]:
    """Return the number of choices of each dimension of a Box of integers, and a function from choices to its actions.

    Raises:
        BadEnv: a dimension has more choices than a network can have outputs.
    """
    choices = space.high.astype(np.float64) - space.low.astype(np.float64) + 1
    if choices.max(initial=0) > MOST_CHOICES:
        raise BadEnv(
            f"{id}: a dimension of its action space {plain(str(space), 60)} has more than {MOST_CHOICES:,} integers; "
            "wrap the environment so that it has fewer, or takes a Box of floats"
        )

    def to_env(action: Array) -> Array:
        numbers = action.reshape(len(action), *space.shape).astype(np.int64)
        return (numbers + space.low).astype(space.dtype)

    return spaces.MultiDiscrete(choices.astype(np.int64).reshape(-1)), to_env


def _number_converter(space: spaces.Discrete) -> Callable[[Array], object] | None:
    """Return a function from choices, counted from 0, to the numbers of the space; None if these are the same."""
    start = int(space.start)
    dtype = space.dtype
    if dtype != np.int64:
        return lambda action: (action + start).astype(dtype)
    return (lambda action: action + start) if start else None


class PartsConverter:
    """Converts canonical actions [N, k] to the dictionaries or tuples of arrays [N, ...] that an environment takes."""

    def __init__(
        self,
        space: spaces.Dict | spaces.Tuple[object],
        id: str,
    ) -> None:
        self.tuples = isinstance(space, spaces.Tuple)
        converted = {str(name): canonical_action(part, id) for name, part in inner_spaces(space)}
        # A list of pairs keeps the order; a dictionary would be sorted.
        self.canonical = spaces.Dict(
            [(name, canonical) for name, (canonical, _) in converted.items()]
        )
        self.parts: list[
            tuple[str, slice, tuple[int, ...], np.dtype[Any], Callable[[Array], Any] | None]
        ] = []
        end = 0
        for name, (canonical, to_env) in converted.items():
            start = end
            shape = shape_of(canonical)
            end += prod(shape)
            self.parts.append((name, slice(start, end), shape, dtype_of(canonical), to_env))

    def __call__(self, action: Array) -> object:
        """Return fresh arrays, which an environment may keep."""
        values = {}
        for name, columns, shape, dtype, to_env in self.parts:
            part = action[:, columns].reshape(len(action), *shape).astype(dtype)
            values[name] = part if to_env is None else to_env(part)
        return tuple(values.values()) if self.tuples else values


class Rescale:
    """Converts canonical Box actions [N, ...] to the environment's: scales if both bounds are finite, always clips."""

    def __init__(self, space: spaces.Box) -> None:
        self.dtype = space.low.dtype
        self.low = space.low
        self.high = space.high
        bounded, *factors = scale_and_shift(space)
        self.scale, self.shift = (factor.astype(self.dtype) for factor in factors)
        self.shifted = bool(self.shift.any())
        self.identity = bool((self.scale == 1).all()) and not self.shifted
        self.bounds = self.low[None], self.high[None]
        # Larger bounds count as none; Gymnasium cannot draw from a range that its type does not hold.
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        bottom = np.where(bounded, -1, np.where(low > -UNBOUNDED, low, -np.inf))
        top = np.where(bounded, 1, np.where(high < UNBOUNDED, high, np.inf))
        self.canonical = spaces.Box(
            bottom.astype(self.dtype), top.astype(self.dtype), dtype=self.dtype.type
        )

    def __call__(self, action: Array) -> Array:
        """Return a fresh array, which an environment may keep."""
        if action.dtype != self.dtype:
            action = action.astype(self.dtype)
        low, high = self.bounds
        # Broadcasting the bounds of one row takes as long as the comparison.
        if len(action) != len(low):
            rows = np.ones((len(action), *(1,) * self.low.ndim), self.dtype)
            low, high = self.bounds = rows * self.low, rows * self.high
        if self.identity:
            action = np.maximum(action, low)
        else:
            action = action * self.scale
            if self.shifted:
                action += self.shift
            np.maximum(action, low, out=action)
        return np.minimum(action, high, out=action)


def allocate(space: Space, num_envs: int) -> Obs:
    """Return zeros for `num_envs` observations of a canonical space: an array [num_envs, ...] or a dictionary."""
    if isinstance(space, spaces.Dict):
        return {name: allocate(sub, num_envs) for name, sub in space.spaces.items()}
    return np.zeros((num_envs, *(space.shape or ())), space.dtype)


def write(target: Obs, value: Any) -> None:
    """Put a batch of observations into `target` [N, ...]; any error of `ERRORS` says that it does not fit."""
    if isinstance(target, dict):
        for name, inner in target.items():
            write(inner, part(value, name))
    elif (
        value.__class__ is np.ndarray
        and value.dtype is target.dtype
        and value.shape == target.shape
    ):
        target[...] = value
    else:
        target[...] = fit(value, target.shape, target.dtype)


def put(
    target: Obs,
    row: int,
    value: object,
    describe_step: Callable[[int], str],
) -> None:
    """Put one observation into a row, part by part; `describe_step` names a row and its step in a message.

    Raises:
        BadEnv: a part is missing, has another shape, or would not keep its numbers.
    """
    try:
        _write_part(target, row, value)
    except ERRORS:
        if mismatch := find_mismatch(target, value):
            raise BadEnv(f"{describe_step(row)}: {mismatch}") from None
        raise


def _write_part(target: Obs, row: int, value: Any) -> None:
    """Write an observation, converted to the shape and type of its part; any error says that it does not fit."""
    if isinstance(target, dict):
        for name, inner in target.items():
            _write_part(inner, row, part(value, name))
    elif value.__class__ is np.ndarray:
        if value.dtype is not target.dtype or value.shape != target.shape[1:]:
            value = fit(value, target.shape[1:], target.dtype)
        target[row] = value
    elif value.__class__ in INTEGERS and target.ndim == 1 and target.dtype is INT64:
        target[row] = value
    else:
        target[row] = fit(value, target.shape[1:], target.dtype)


def merge(target: Obs, rows: Array, source: Any, name: str = "") -> None:
    """Copy the rows that the mask `rows` [N] selects from a batch of observations into `target` [N, ...].

    Raises:
        DtypeMismatch: they do not fit; its index counts the rows that were selected.
    """
    if isinstance(target, dict):
        for key, inner in target.items():
            merge(inner, rows, part(source, key), f"{name}/{key}" if name else key)
    else:
        chosen = np.asarray(source)[rows]
        target[rows] = fit(
            chosen, (len(chosen), *target.shape[1:]), target.dtype, f" '{name}'" if name else ""
        )


def equal_rows(first: Obs, second: Obs, rows: Array) -> bool:
    """Return whether two batches of observations agree in the rows that the mask selects; NaN agrees with NaN."""
    if isinstance(first, dict):
        return all(equal_rows(inner, second[name], rows) for name, inner in first.items())
    return bool(first[rows].tobytes() == second[rows].tobytes())
