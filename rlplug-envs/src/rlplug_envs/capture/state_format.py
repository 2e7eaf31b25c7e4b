"""The format of captured state, shared by the encoder and the decoder: markers, known types, names and limits."""

from __future__ import annotations

import enum
import logging
import types
from collections.abc import Mapping
from typing import TypeAlias, cast

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlplug_core.config.import_string import FROM_FILE
from rlplug_core.types import Array, Space
from rlplug_envs.families import ale, mujoco

#: The names and numbers that lead from the captured object to a value in it.
Path: TypeAlias = tuple[str, ...]
#: A captured value, which JSON and array files can hold.
Captured: TypeAlias = (
    "bool | int | float | str | Array | list[Captured] | dict[str, Captured] | None"
)

#: The key that marks a dictionary as an encoded value of another type.
KIND = "~"
#: The most levels of nested values; each one takes several frames of Python's stack here and in checkpoints.
MAX_DEPTH = 100
#: The most values, captured in about half a second; many rows may have more: `VALUES_PER_ROW` for each.
MAX_VALUES = 100_000
VALUES_PER_ROW = 1_000
#: An array or an object takes as much additional time as this many numbers.
OBJECT_COST = 4
#: The most bytes of arrays and text; equal data of several rows counts once.
MAX_BYTES = 1 << 29
#: Collections of at least this many plain values are packed into one array or text.
PACKED_FROM = 32
#: Arrays of at least this many bytes are compared, so that equal ones are stored once.
SHARED_FROM = 1 << 14
#: Integers with more bits are stored in hexadecimal, because Python refuses to write very long ones in decimal.
MAX_BITS = 4096

#: Arrays of these types are stored unchanged; others as bytes.
STORED = frozenset("?bBhHiIlLqQefd")
#: Attributes of Gymnasium's own classes that never change behavior: records of how something was built.
IMMATERIAL = frozenset(
    {"env_fns", "_saved_kwargs", "_cached_spec", "_ezpickle_args", "_ezpickle_kwargs"}
)
#: Gymnasium's toy text environments keep a table of all transitions, computed from their arguments.
TABLES = IMMATERIAL | {"P"}
BIT_GENERATORS = frozenset({"MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"})
#: Types of code: it is not state, and the restored environment keeps its own.
CODE = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
    np.dtype,
    EnvSpec,
    logging.Logger,
)
#: Types of optional packages that are not state either.
OPTIONAL_CODE = frozenset(
    {
        mujoco.RENDERER,
        "pygame.surface.Surface",
        "pygame.font.Font",
        "pygame.freetype.Font",
        "pygame.time.Clock",
    }
)
#: Four numbers in an object written in C.
RECTANGLE = "pygame.rect.Rect"
#: Types of simulators that are captured through their packages.
SIMULATORS = (RECTANGLE, mujoco.DATA, mujoco.MODEL, ale.INTERFACE)
#: Instances of this size have only a `__dict__`; larger ones have slots or a part written in C.
PLAIN_SIZE = type("Plain", (), {}).__basicsize__


class Uncapturable(ValueError):
    """A value cannot be captured or restored; the message names it."""


def name_without_place(id: str) -> str:
    """Return an environment's id; for one in a file only its name, because a resumed run has the file elsewhere."""
    return id.rpartition(".py:")[2]


def type_name(kind: type) -> str:
    """Return a class's module and name; only the name if it is built in or comes from a file."""
    module = module_name(kind)
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"


def module_name(kind: type) -> str:
    """Return the module of a class; "" for C classes without one, and for files, which runs copy under other names."""
    module = str(getattr(kind, "__module__", ""))
    return "" if module.startswith(FROM_FILE) or module == "__main__" else module


def attribute_names(path: Path) -> list[str]:
    """Return the attributes on a path, without row numbers and the wrappers around the environment."""
    return [name for name in path if name != "env" and not name.isdigit()]


def describe_path(path: Path) -> str:
    """Return the path as a user would write it, for a message."""
    names = attribute_names(path)
    return f"attribute '{'.'.join(names)}'" if names else "the environment"


def describe_attribute(path: Path) -> str:
    """Return the attribute of the environment at the start of the path, for a message."""
    return describe_path(tuple(attribute_names(path)[:1]))


def constant_attributes(kind: type) -> frozenset[str]:
    """Return the names of attributes that are not part of the state of a class."""
    return TABLES if module_name(kind).startswith("gymnasium.envs.toy_text.") else IMMATERIAL


def subspaces(space: Space) -> list[Space]:
    """Return the direct parts of a Dict or Tuple space; none for other spaces."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.values())
    return list(space.spaces) if isinstance(space, spaces.Tuple) else []


def read_path(record: dict[str, Captured]) -> Path:
    """Return the path in a record that refers to another value."""
    return tuple(cast("list[str]", record["path"]))


def build_generator(
    state: Mapping[str, object],
    path: Path,
) -> np.random.Generator:
    """Return a generator in a captured state; raise Uncapturable for a bit generator that is not numpy's."""
    name = str(state["bit_generator"])
    if name not in BIT_GENERATORS:
        raise Uncapturable(
            f"{describe_path(path)} draws from {name}, which this version does not know"
        )
    bits = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)


def enum_member(
    state: dict[str, Captured],
    current: object,
    path: Path,
) -> enum.Enum:
    """Return the saved member of the enum that the environment to restore has at this path."""
    if not isinstance(current, enum.Enum):
        raise Uncapturable(
            f"{describe_path(path)} was the enum member {state['name']}, here it is {current!r}"
        )
    return type(current)[str(state["name"])]
