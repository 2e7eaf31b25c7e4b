"""Spaces as JSON, and the conversion of canonical actions to actions of an environment."""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import scale_and_shift
from rlplug_core.types import Array, Space

#: The most numbers of an observation or an action in a file.
LARGEST = 2**24


def space_to_json(space: Space) -> dict[str, object]:
    """Return a space as JSON.

    Raises:
        UsageError: the space is not a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
    """
    if isinstance(space, spaces.Box):
        limits = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **limits}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"kind": "MultiDiscrete", **numbers, "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        parts = [[name, space_to_json(part)] for name, part in space.spaces.items()]
        return {"kind": "Dict", "parts": parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    raise UsageError(
        f"a {type(space).__name__} space cannot be exported; wrap the environment so that it has another space"
    )


def space_from_json(record: dict[str, Any]) -> Space:
    """Return the space for its JSON; the inverse of `space_to_json`.

    Raises:
        ValueError: it has more than `LARGEST` numbers, as in a malicious file.
    """
    if _count(record) > LARGEST:
        raise ValueError(f"a space has more than {LARGEST:,} numbers")
    kind = record["kind"]
    if kind == "Box":
        shape = tuple(record["shape"])
        dtype = np.dtype(record["dtype"])
        low, high = (
            np.broadcast_to(np.asarray(record[end], dtype), shape).copy() for end in ("low", "high")
        )
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(record["n"], start=record["start"])
    if kind == "MultiDiscrete":
        dtype = np.dtype(record["dtype"])
        return spaces.MultiDiscrete(
            np.array(record["nvec"], dtype), dtype.type, start=np.array(record["start"], dtype)
        )
    if kind == "MultiBinary":
        shape = record["shape"]
        return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in record["parts"]])
    return spaces.Dict([(name, space_from_json(part)) for name, part in record["parts"]])


def _count(record: dict[str, Any]) -> int:
    """Return how many numbers a value of the space has, without making the space."""
    parts = record.get("parts")
    if parts is None:
        return prod(record.get("shape", ()))
    return sum(_count(part if isinstance(part, dict) else part[1]) for part in parts)


def to_env_action(space: Space, action: Array) -> object:
    """Convert canonical actions [N, ...] to actions of an environment with the action space `space`."""
    if isinstance(space, spaces.Dict):
        names = list(space.spaces)
        return dict(zip(names, _parts([space[name] for name in names], action), strict=True))
    if isinstance(space, spaces.Tuple):
        return tuple(_parts(list(space.spaces), action))
    if isinstance(space, spaces.Discrete):
        return action + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return action.astype(space.start.dtype) + space.start
    if isinstance(space, spaces.Box) and space.dtype.kind in "iub":  # counted from its lower bounds
        numbers = action.reshape(len(action), *space.shape).astype(np.int64) + space.low
        return numbers.astype(space.dtype)
    if isinstance(space, spaces.Box):
        scale, shift = (array.astype(space.dtype) for array in scale_and_shift(space)[1:])
        scaled = action.astype(space.dtype) * scale + shift
        return np.clip(scaled, space.low, space.high)
    return action.astype(np.int8)


def _parts(parts: list[Space], action: Array) -> list[Any]:
    """Return the columns [N, k] of each part in the shape and dtype of the part."""
    result = []
    start = 0
    for part in parts:
        end = start + _width(part)
        columns = action[:, start:end]
        start = end
        if not isinstance(part, spaces.Dict | spaces.Tuple):
            columns = columns.reshape(len(action), *(part.shape or ())).astype(part.dtype)
        result.append(to_env_action(part, columns))
    return result


def _width(space: Space) -> int:
    """Return the number of columns of a part."""
    if isinstance(space, spaces.Dict):
        return sum(map(_width, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return sum(map(_width, space.spaces))
    return int(np.prod(space.shape or ()))


def _bound(values: Array) -> object:
    """Return exact bounds as JSON: one number if all are equal; an infinity is text that NumPy parses."""
    flat = values.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return _number(flat[0].item())
    return _numbers(values.tolist())


def _numbers(values: Any) -> object:
    return [_numbers(part) for part in values] if isinstance(values, list) else _number(values)


def _number(value: float) -> float | str:
    return value if isfinite(value) else str(value)
