"""Data sets of transitions: checked against an environment, identified by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import dtype_of, scale_and_shift
from rlplug_core.nets.one_hot import Counted, first_altered, outlier
from rlplug_core.types import Array, Obs, Space, Spec, Step, first_nonfinite_row, tree_map

OBS = "observations"
NEXT_OBS = "next_observations"
FIELDS = (OBS, "actions", "rewards", NEXT_OBS, "terminations", "truncations")
MINARI = "minari:"
#: Rounding may move actions out of the bounds by this share of the range; they are clipped.
OUTSIDE = 1e-3


@dataclass(frozen=True)
class Dataset:
    """Recorded transitions [M, ...], unchanged.

    Attributes:
        place: an absolute path, or `minari:ID`.
        arrays: by the names of `FIELDS`; observations may be nested dictionaries.
        env: the id of its environment, if it names one; else an empty string.
    """

    place: str
    arrays: Mapping[str, Any] = field(repr=False)
    env: str = ""

    def __len__(self) -> int:
        return len(self.arrays["rewards"])

    @cached_property
    def sha256(self) -> str:
        """Return the hash of names, types, shapes and content of all arrays; compression does not change it."""
        digest = hashlib.sha256()
        for name, array in sorted(flatten(self.arrays).items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def description(self) -> dict[str, object]:
        """Return its place, hash and length for the record of a run."""
        return {"place": self.place, "sha256": self.sha256, "transitions": len(self)}

    def fit(self, spec: Spec, action_space: Space) -> Fitted:
        """Return the transitions in the form that a learner's buffer stores.

        Args:
            spec: spec of the environment, with the spaces that agents see.
            action_space: the actions of the bare environment.

        Raises:
            UsageError: it is not from an environment with such spaces.
        """
        rewards = _numbers(self.arrays["rewards"], "rewards", (), self.place)
        count = len(self)
        for name in FIELDS:
            if {len(leaf) for leaf in flatten({name: self.arrays[name]}).values()} != {count}:
                raise self._mismatch_error(f"'{name}' and 'rewards' differ in length")
        obs, next_obs = (self._obs(name, spec) for name in (OBS, NEXT_OBS))
        actions = _canonical(
            _numbers(self.arrays["actions"], "actions", action_space.shape, self.place),
            action_space,
        )
        if actions is None:
            raise self._mismatch_error(f"its actions are outside {action_space}")
        terminated, truncated = (
            _numbers(self.arrays[name], name, (), self.place) != 0 for name in FIELDS[-2:]
        )
        return Fitted(
            sha256=self.sha256,
            obs=obs,
            action=actions.astype(dtype_of(spec.action)),
            reward=rewards.astype(np.float32),
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated & ~terminated,
        )

    def _obs(self, name: str, spec: Spec) -> Obs:
        """Return observations in the form of the environment's space; `name` is that of their arrays."""
        arrays = flatten({name: self.arrays[name]})
        needed = _leaves(spec.obs, name)
        if arrays.keys() != needed.keys():
            raise self._mismatch_error(
                f"it has {', '.join(sorted(arrays))}, and {spec.id} has {', '.join(sorted(needed))}"
            )
        return self._nest_obs(spec.obs, arrays, name)

    def _nest_obs(
        self,
        space: Space,
        arrays: Mapping[str, Array],
        name: str,
    ) -> object:
        """Return observations nested like their space; a key may contain the slash that also joins names."""
        if isinstance(space, spaces.Dict):
            return {
                key: self._nest_obs(part, arrays, f"{name}/{key}")
                for key, part in space.spaces.items()
            }
        array = _numbers(arrays[name], name, space.shape, self.place)
        cast = array.astype(space.dtype, copy=False)
        if isinstance(space, Counted):
            if (array != cast).any():
                raise self._mismatch_error(
                    f"'{name}' holds numbers that are not whole, and it is {space}"
                )
            outside = outlier(space, cast)
        else:
            outside = first_altered(space, array)
        if outside:
            raise self._mismatch_error(f"'{name}' of transition {outside[0]:,} {outside[1]}")
        return cast

    def _mismatch_error(self, why: str) -> UsageError:
        return UsageError(
            f"the data set {self.place} does not fit: {why}; name one that was recorded in this environment"
        )


@dataclass(frozen=True)
class Fitted:
    """The transitions [M, ...] of a data set, with canonical actions and the types of an environment's spaces."""

    sha256: str
    obs: Obs
    action: Array
    reward: Array
    next_obs: Obs
    terminated: Array
    truncated: Array

    def __len__(self) -> int:
        return len(self.reward)

    def steps(self) -> Iterator[Step]:
        """Return the transitions as steps of one row; an episode ends if the next transition does not follow."""
        truncated = (self.truncated | ~self._is_continued()) & ~self.terminated
        first = np.concatenate([[True], (self.terminated | truncated)[:-1]])
        valid = np.ones(1, bool)
        for row in range(len(self)):
            rows = slice(row, row + 1)
            obs, next_obs = (
                tree_map(lambda array, rows=rows: array[rows], tree)
                for tree in (self.obs, self.next_obs)
            )
            yield Step(
                obs=obs,
                action=self.action[rows],
                reward=self.reward[rows],
                next_obs=next_obs,
                terminated=self.terminated[rows],
                truncated=truncated[rows],
                is_first=first[rows],
                valid=valid,
                ended=bool(self.terminated[row] or truncated[row]),
                extras={},
                recurrent_state=None,
            )

    def _is_continued(self) -> Array:
        """Return for each transition [M] whether the next one starts from its successor."""
        continued = np.ones(len(self), bool)
        continued[-1] = False
        next_obs = flatten({"": self.next_obs})
        for name, obs in flatten({"": self.obs}).items():
            same = obs[1:] == next_obs[name][:-1]
            continued[:-1] &= same.all(axis=tuple(range(1, same.ndim)))
        return continued


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, Array]:
    """Return nested dictionaries of arrays as one dictionary with keys `outer/inner`."""
    arrays: dict[str, Array] = {}
    for name, value in tree.items():
        key = f"{prefix}/{name}" if prefix else name
        arrays |= flatten(value, key) if isinstance(value, Mapping) else {key: np.asarray(value)}
    return arrays


def nest(arrays: Mapping[str, Array]) -> dict[str, object]:
    """Return nested dictionaries for keys `outer/inner`; the inverse of `flatten`.

    Raises:
        ValueError: an array and a dictionary have the same name.
    """
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *outer, last = name.split("/")
        inside = tree
        for key in outer:
            inside = inside.setdefault(key, {})
            if not isinstance(inside, dict):
                raise ValueError(f"'{name}' is inside an array")
        inside[last] = array
    return tree


def _leaves(space: Space, name: str) -> dict[str, Space]:
    """Return the spaces in a Dict that are not Dicts, with keys `name/outer/inner`."""
    if not isinstance(space, spaces.Dict):
        return {name: space}
    return {
        key: leaf
        for part, inner in space.spaces.items()
        for key, leaf in _leaves(inner, f"{name}/{part}").items()
    }


def _numbers(
    value: Any,
    name: str,
    shape: tuple[int, ...] | None,
    place: str,
) -> Array:
    """Return an array [M, *shape] of numbers.

    Raises:
        UsageError: it does not contain plain numbers of this shape that are finite in float32.
    """
    if isinstance(value, Mapping) or value.dtype.kind not in "biuf":
        raise UsageError(
            f"the data set {place} does not fit: '{name}' is not an array of plain numbers"
        )
    array: Array = value
    if array.shape[1:] != (shape or ()):
        raise UsageError(
            f"the data set {place} does not fit: '{name}' has shape {list(array.shape[1:])} in each step, not "
            f"{list(shape or ())}; name one that was recorded in this environment"
        )
    # Learners compute in float32; numbers too large for it become infinite.
    with np.errstate(over="ignore"):
        single = array.astype(np.float32) if array.dtype == np.float64 else array
    if not np.isfinite(single).all():
        row = first_nonfinite_row(single)
        raise UsageError(
            f"the data set {place} cannot be learned from: '{name}' of transition {row:,} is not finite"
        )
    return array


def canonical_actions(actions: Array, space: Space) -> Array:
    """Convert actions [B, ...] from the environment's units to those of an agent: a bounded Box becomes [-1, 1].

    Args:
        actions: in the units of the environment, as in a data set or from a `Policy`.
        space: the actions of the bare environment (`EnvBase.action_space`).

    Returns:
        Actions [B, ...] in the space `Spec.action`.

    Raises:
        UsageError: some are outside the space, or the space has several parts.
    """
    canonical = _canonical(actions, space)
    if canonical is None:
        raise UsageError(f"there are actions outside {space}")
    return canonical.astype(np.float32) if canonical.dtype.kind == "f" else canonical


def _canonical(actions: Array, space: Space) -> Array | None:
    """Convert an environment's actions to the units of an agent; return None if some are outside the space.

    Raises:
        UsageError: the space has several parts, or its kind is not supported.
    """
    if isinstance(space, Counted) and (actions != actions.astype(np.int64)).any():
        return None
    if isinstance(space, spaces.Discrete):
        numbers = actions.astype(np.int64) - int(space.start)
        return numbers if ((numbers >= 0) & (numbers < space.n)).all() else None
    if isinstance(space, spaces.MultiDiscrete):
        numbers = actions.astype(np.int64) - space.start
        return numbers if ((numbers >= 0) & (numbers < space.nvec)).all() else None
    if isinstance(space, spaces.MultiBinary):
        return actions if np.isin(actions, (0, 1)).all() else None
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"data sets of {type(space).__name__} actions cannot be read; those of one Box or Discrete can"
        )
    if space.dtype.kind in "iub":  # agents count the integers of each dimension from 0
        whole = (actions == actions.astype(np.int64)).all()
        inside = ((actions >= space.low) & (actions <= space.high)).all()
        choices = actions.astype(np.int64) - space.low
        return choices.reshape(len(choices), -1) if whole and inside else None
    return _unscale(actions, space)


def _unscale(actions: Array, space: spaces.Box) -> Array | None:
    """Scale actions from finite bounds to [-1, 1], the inverse of `scale_and_shift`; None if some are out of bounds."""
    low = space.low.astype(np.float64)
    high = space.high.astype(np.float64)
    bounded, scale, shift = scale_and_shift(space)
    unscaled = (actions - shift) / np.where(scale == 0, 1.0, scale)
    # Dimensions with a bound on one side only, or none, are not scaled.
    outside = (actions < low - OUTSIDE) | (actions > high + OUTSIDE)
    if np.where(bounded, np.abs(unscaled) > 1 + OUTSIDE, outside).any():
        return None
    clipped: Array = np.where(bounded, unscaled.clip(-1, 1), actions.clip(low, high))
    return clipped
