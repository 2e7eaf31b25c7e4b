"""Capture and restore the state of Gymnasium environments explicitly, attribute by attribute, without pickle.

A state is a tree of arrays, numbers, strings, booleans and None that survives JSON and array files; nothing in it can
run code. Restoring fills an environment that was built the same way. What cannot be captured faithfully raises
`Uncapturable` with the attribute's name: a guess would be a silently wrong resume.
"""

from __future__ import annotations

import enum
import logging
import random
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import isfinite
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from rlplug_core.config.import_string import FROM_FILE, describe
from rlplug_core.errors import PluginError, RlplugError
from rlplug_core.nets.actions import legal, sample
from rlplug_core.nets.heads import check_mask
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.protocols import Env
from rlplug_core.seeds import global_state, load_global_state, untouched
from rlplug_core.types import Array, Obs, Space, State, Timestep, tree_map
from rlplug_envs.families import ale, mujoco
from rlplug_envs.games import Parallel, Turns
from rlplug_envs.raw_return import RawReturn

Path: TypeAlias = tuple[str, ...]

#: Seconds that the test of an environment takes of which a step takes long, and the steps that it makes of each.
ENOUGH = 5.0
LEAST = 8

#: The key that marks a dictionary as an encoded value of another type.
KIND = "~"
#: Arrays of these types are stored as they are; others as bytes.
STORED = frozenset("?bBhHiIlLqQefd")
#: Attributes of Gymnasium's own classes that never change behavior: records of how something was built.
IMMATERIAL = frozenset(
    {"env_fns", "_saved_kwargs", "_cached_spec", "_ezpickle_args", "_ezpickle_kwargs"}
)
#: Gymnasium's toy text environments keep a table of all transitions, up to thousands, made once from their arguments.
TABLES = IMMATERIAL | {"P"}
BIT_GENERATORS = frozenset({"MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"})
#: Code, not state: the environment that is restored keeps its own.
CODE = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
    np.dtype,
    EnvSpec,
    logging.Logger,
)
#: Code too, of classes that are not always there.
KEPT = frozenset(
    {
        mujoco.RENDERER,
        "pygame.surface.Surface",
        "pygame.font.Font",
        "pygame.freetype.Font",
        "pygame.time.Clock",
    }
)
#: Four numbers in an object of C.
RECTANGLE = "pygame.rect.Rect"
#: Types of simulators that are captured through their packages.
FOREIGN = (RECTANGLE, mujoco.DATA, mujoco.MODEL, ale.INTERFACE)
#: Packages that are no environment's own.
GENERAL = frozenset({"", "builtins", "gymnasium", "numpy", "rlplug_core", "rlplug_envs"})
#: Instances of this size hold nothing but their `__dict__`; larger ones have slots or a part written in C.
PLAIN_SIZE = type("Plain", (), {}).__basicsize__


class Uncapturable(ValueError):
    """A value cannot be captured or restored; the message names it."""


def capture(root: object) -> object:
    """The state of an environment, a vector environment or a list of them, through all their wrappers.

    Objects that occur twice, such as a generator shared by wrapper and environment, are shared again after `restore`.
    Raises Uncapturable for what is not a plain value, array, generator or Python object made of these.
    """
    return _Encoder().encode(root, ())


def restore(root: object, state: object) -> None:
    """Put `root`, built as the captured environment was, into the captured state; raises Uncapturable if it differs."""
    _Decoder().decode(state, root, ())


class _Encoder:
    def __init__(self) -> None:
        self.seen: dict[
            int, tuple[Path, object]
        ] = {}  # the objects too, lest another one gets the id
        self.arrays: list[tuple[Path, Array]] = []

    def encode(self, value: Any, path: Path) -> object:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str:
            return value
        if (
            kind is RawReturn
        ):  # no part of a state, so that those of runs without it fit: whoever asks it keeps its sum
            return self.encode(value.env, path)
        if kind is float:
            return value if isfinite(value) else {KIND: "float", "value": repr(value)}
        if isinstance(value, np.generic):
            return {KIND: "scalar", "value": _encode_array(np.array([value]), path)}
        if isinstance(value, enum.Enum):
            return {KIND: "enum", "name": value.name}
        if (
            isinstance(value, CODE)
            or (kind is types.FunctionType and value.__closure__ is None)
            or _name(kind) in KEPT
        ):
            return {KIND: "kept"}
        if kind is tuple:
            return {KIND: "tuple", "items": self._items(value, path)}
        if kind is bytes:
            return {KIND: "bytes", "value": np.frombuffer(value, np.uint8).copy()}
        if id(value) in self.seen:
            return {KIND: "same", "path": list(self.seen[id(value)][0])}
        self.seen[id(value)] = path, value
        return self._encode_object(value, kind, path)

    def _encode_object(self, value: Any, kind: type, path: Path) -> object:
        """Encode an object with an identity: it may occur twice."""
        if kind is np.ndarray:
            self._refuse_views(value, path)
            return _encode_array(value, path)
        if kind is dict:
            return self._encode_dict(value, path)
        if kind is list:
            return self._items(value, path)
        if kind is deque:
            return {KIND: "deque", "items": self._items(value, path), "maxlen": value.maxlen}
        if isinstance(value, spaces.Space):
            return self._encode_space(value, path)
        if kind is np.random.Generator:
            return {KIND: "generator", "state": self.encode(value.bit_generator.state, path)}
        if kind is np.random.RandomState:
            return {KIND: "legacy", "state": self.encode(value.get_state(legacy=False), path)}
        if kind is random.Random:
            return {KIND: "random", "state": self.encode(value.getstate(), path)}
        if _name(kind) in FOREIGN:
            return _encode_foreign(value, _name(kind), path)
        if kind.__basicsize__ == PLAIN_SIZE and hasattr(value, "__dict__"):
            constant = _constant(kind)
            attributes = {
                name: inner for name, inner in vars(value).items() if name not in constant
            }
            inner = {name: self.encode(part, (*path, name)) for name, part in attributes.items()}
            return {KIND: "object", "type": _name(kind), "attributes": inner}
        if kind is types.FunctionType:
            cells = [cell.cell_contents for cell in value.__closure__]
            return {KIND: "closure", "name": value.__qualname__, "cells": self._items(cells, path)}
        raise Uncapturable(f"{_where(path)} is a {_name(kind)}, which cannot be captured")

    def _items(self, values: Any, path: Path) -> list[object]:
        return [self.encode(value, (*path, str(number))) for number, value in enumerate(values)]

    def _encode_dict(self, value: dict[Any, Any], path: Path) -> object:
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: self.encode(inner, (*path, key)) for key, inner in value.items()}
        return {
            KIND: "dict",
            "keys": self._items(value, (*path, "keys")),
            "values": self._items(value.values(), path),
        }

    def _encode_space(self, space: Space, path: Path) -> object:
        """A space is constant but for the generator it samples with, None until it is used."""
        parts = [
            self._encode_space(part, (*path, str(number)))
            for number, part in enumerate(_parts(space))
        ]
        generator = self.encode(space._np_random, (*path, "random"))
        return {KIND: "space", "random": generator, "parts": parts}

    def _refuse_views(self, array: Array, path: Path) -> None:
        """Two arrays on the same memory would be torn apart by restoring."""
        for other_path, other in self.arrays:
            if (array.base is not None or other.base is not None) and np.may_share_memory(
                array, other
            ):
                raise Uncapturable(
                    f"{_where(path)} shares memory with {_where(other_path)}, which cannot be captured"
                )
        self.arrays.append((path, array))


def _encode_foreign(value: Any, name: str, path: Path) -> object:
    if name == RECTANGLE:
        return {KIND: "rectangle", "sides": list(value)}
    if name == mujoco.DATA:
        return {KIND: "simulation", **mujoco.capture_data(value)}
    if name == mujoco.MODEL:
        return {KIND: "model", "digest": mujoco.fingerprint(value)}
    if secret := ale.hidden(value):
        raise Uncapturable(f"{_where(path)} {secret}")
    return {KIND: "arcade", "state": ale.capture_game(value)}


def _encode_array(array: Array, path: Path) -> object:
    """Common C-ordered arrays as they are; text, long doubles and Fortran order as bytes."""
    if array.dtype.hasobject:
        raise Uncapturable(f"{_where(path)} is an array of objects, which cannot be captured")
    if array.dtype.names:
        raise Uncapturable(f"{_where(path)} is an array with fields, which cannot be captured")
    if array.dtype.char in STORED and array.dtype.isnative and array.flags.c_contiguous:
        return array.copy()
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    data = np.frombuffer(array.tobytes(order="F" if fortran else "C"), np.uint8).copy()
    record = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "order": "F" if fortran else "C",
    }
    return {KIND: "array", **record, "data": data}


class _Decoder:
    """Builds values anew; environments, objects and spaces are filled in place, which is why `current` goes along."""

    def __init__(self) -> None:
        self.made: dict[Path, object] = {}
        self.filled: set[int] = set()  # ids of objects that are in `made`
        self.packages: set[str] = set()  # where the classes of filled objects are from

    def decode(self, state: object, current: object, path: Path) -> Any:
        if isinstance(state, list):
            values: list[object] = []
            self.made[path] = values
            values.extend(self._items(state, current, path))
            return values
        if isinstance(state, dict):
            decode = self._decode_record if KIND in state else self._decode_dict
            return decode(state, current, path)
        if isinstance(state, np.ndarray):
            self.made[path] = state.copy()
            return self.made[path]
        return state

    def _items(self, states: list[Any], current: Any, path: Path) -> list[object]:
        fits = isinstance(current, list | tuple | deque) and len(current) == len(states)
        return [
            self.decode(state, current[number] if fits else None, (*path, str(number)))
            for number, state in enumerate(states)
        ]

    def _decode_dict(self, state: State, current: object, path: Path) -> object:
        values: dict[str, object] = {}
        self.made[path] = values
        known = current if isinstance(current, dict) else {}
        for key, inner in state.items():
            values[key] = self.decode(inner, known.get(key), (*path, key))
        return values

    def _decode_record(self, state: State, current: object, path: Path) -> object:
        """A marked dictionary; in the order of the encoder."""
        kind = state[KIND]
        if kind == "float":
            return float(state["value"])
        if kind == "scalar":
            return self._array(state["value"])[0]
        if kind == "enum":
            if not isinstance(current, enum.Enum):
                raise Uncapturable(
                    f"{_where(path)} was the enum member {state['name']}, here it is {current!r}"
                )
            return type(current)[state["name"]]
        if kind == "kept":
            if current is None:
                raise Uncapturable(f"{_where(path)} is missing in the environment to restore")
            return current
        if kind == "tuple":
            return tuple(self._items(state["items"], current, path))
        if kind == "bytes":
            return np.asarray(state["value"], np.uint8).tobytes()
        if kind == "same":
            return self.made[tuple(state["path"])]
        return self._decode_object(kind, state, current, path)

    def _decode_object(self, kind: str, state: State, current: object, path: Path) -> object:
        """Decode an object with an identity, and remember it for a second occurrence."""
        if kind == "object":
            return self._fill(state, current, path)
        if kind == "space":
            return self._fill_space(state, current, path)
        if kind in ("simulation", "model"):
            return self._fill_mujoco(kind, state, current, path)
        if kind == "rectangle":
            return self._fill_rectangle(state, current, path)
        if kind == "closure":
            return self._fill_closure(state, current, path)
        if kind == "arcade":
            return self._fill_game(state, current, path)
        if kind == "dict":
            return self._decode_keys(state, current, path)
        made: object
        if kind == "array":
            made = self._array(state)
        elif kind == "deque":
            made = deque(self._items(state["items"], current, path), state["maxlen"])
        elif kind == "generator":
            made = _generator(self.decode(state["state"], None, path), path)
        elif kind == "legacy":
            made = np.random.RandomState()
            made.set_state(self.decode(state["state"], None, path))
        elif kind == "random":
            made = random.Random()
            made.setstate(self.decode(state["state"], None, path))
        else:
            raise Uncapturable(
                f"{_where(path)} was saved as '{kind}', which this version does not know"
            )
        self.made[path] = made
        return made

    def _fill(self, state: State, current: object, path: Path) -> object:
        if isinstance(current, RawReturn):
            current.env = self.decode(state, current.env, path)
            self.made[path] = current
            return current
        if _name(type(current)) != state["type"] or id(current) in self.filled:
            current = self._built(state["type"], current, path)
        self.made[path] = current
        self.filled.add(id(current))
        self.packages.add(_module(type(current)).partition(".")[0])
        attributes, saved = vars(current), state["attributes"]
        if not all(isinstance(name, str) for name in saved):
            raise Uncapturable(f"{_where(path)} has an attribute without a name")
        values = {
            name: self.decode(part, attributes.get(name), (*path, name))
            for name, part in saved.items()
        }
        for name in attributes.keys() - values.keys() - _constant(type(current)):
            del attributes[name]
        attributes.update(values)
        return current

    def _built(self, name: str, current: object, path: Path) -> object:
        """An empty object of a class beside the environment's own, such as a thing that lies elsewhere in each episode.

        No code of the class runs: it is plain Python, imported already, and of a package of which objects were filled.
        """
        module, _, qualified = name.rpartition(".")
        found = getattr(sys.modules.get(module), qualified, None)
        known = module.partition(".")[0] in self.packages - GENERAL
        if not known or not isinstance(found, type) or found.__basicsize__ != PLAIN_SIZE:
            raise Uncapturable(f"{_where(path)} was a {name}, here it is a {_name(type(current))}")
        return object.__new__(found)

    def _fill_space(self, state: State, current: object, path: Path) -> object:
        if not isinstance(current, spaces.Space):
            raise Uncapturable(f"{_where(path)} was a space, here it is a {_name(type(current))}")
        self.made[path] = current
        current._np_random = self.decode(state["random"], None, (*path, "random"))
        for number, (part, inner) in enumerate(zip(state["parts"], _parts(current), strict=True)):
            self.decode(part, inner, (*path, str(number)))
        return current

    def _fill_mujoco(self, kind: str, state: State, current: object, path: Path) -> object:
        if _name(type(current)) != (mujoco.DATA if kind == "simulation" else mujoco.MODEL):
            raise Uncapturable(
                f"{_where(path)} was a MuJoCo {kind}, here it is a {_name(type(current))}"
            )
        if kind == "simulation":
            mujoco.restore_data(current, state)
        elif mujoco.fingerprint(current) != state["digest"]:
            raise Uncapturable(
                f"{_where(path)} is another MuJoCo model than was captured; it changes as it is used"
            )
        self.made[path] = current
        return current

    def _fill_rectangle(self, state: State, current: Any, path: Path) -> object:
        if _name(type(current)) != RECTANGLE:
            raise Uncapturable(
                f"{_where(path)} was a rectangle, here it is a {_name(type(current))}"
            )
        self.made[path] = current
        current.update(*state["sides"])
        return current

    def _fill_closure(self, state: State, current: Any, path: Path) -> object:
        """A function keeps its code, and gets back what it holds of the function around it."""
        if getattr(current, "__qualname__", None) != state["name"]:
            raise Uncapturable(
                f"{_where(path)} was the function {state['name']}, here it is {current!r}"
            )
        self.made[path] = current
        cells = current.__closure__
        values = self._items(state["cells"], [cell.cell_contents for cell in cells], path)
        for cell, value in zip(cells, values, strict=True):
            cell.cell_contents = value
        return current

    def _fill_game(self, state: State, current: object, path: Path) -> object:
        if _name(type(current)) != ale.INTERFACE:
            raise Uncapturable(
                f"{_where(path)} was an Atari game, here it is a {_name(type(current))}"
            )
        ale.restore_game(current, state["state"])
        self.made[path] = current
        return current

    def _decode_keys(self, state: State, current: object, path: Path) -> object:
        values: dict[object, object] = {}
        self.made[path] = values
        known = current if isinstance(current, dict) else {}
        keys = self._items(state["keys"], None, (*path, "keys"))
        for number, (key, inner) in enumerate(zip(keys, state["values"], strict=True)):
            values[key] = self.decode(inner, known.get(key), (*path, str(number)))
        return values

    def _array(self, state: object) -> Array:
        if isinstance(state, dict):
            data = np.asarray(state["data"], np.uint8).tobytes()
            return (
                np.frombuffer(data, np.dtype(state["dtype"]))
                .reshape(state["shape"], order=state["order"])
                .copy("K")
            )
        return np.array(state)


def _generator(state: State, path: Path) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in BIT_GENERATORS:
        raise Uncapturable(f"{_where(path)} draws from {name}, which this version does not know")
    bits = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)


def _parts(space: Space) -> list[Space]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.values())
    return list(space.spaces) if isinstance(space, spaces.Tuple) else []


def _constant(kind: type) -> frozenset[str]:
    return TABLES if _module(kind).startswith("gymnasium.envs.toy_text.") else IMMATERIAL


def _name(kind: type) -> str:
    module = _module(kind)
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"


def _module(kind: type) -> str:
    """The module of a class; "" for the odd one in C that has none, and for a file, of which a run has a copy."""
    module = str(getattr(kind, "__module__", ""))
    return "" if module.startswith(FROM_FILE) or module == "__main__" else module


def _where(path: Path) -> str:
    """The path as one would write it, without the row number and the wrappers above the environment."""
    names = [name for name in path if name != "env" and not name.isdigit()]
    return f"attribute '{'.'.join(names)}'" if names else "the environment"


def self_test(make: Callable[[], Env], steps: int = 64) -> str:
    """Return why the environment that `make` builds cannot resume exactly; "" if it can.

    One instance runs ahead; its state goes into a second, fresh instance, and later back into the first. All three
    continuations must agree in every output. The process's random generators are left as they were. What a mask forbids
    is not done here either.

    Raises:
        UsageError: there is a mask, and it does not fit the actions.
    """
    with untouched():
        first = make()
        second = make()
        try:
            return _compare(first, second, steps)
        finally:
            first.close()
            second.close()


def _compare(first: Env, second: Env, steps: int) -> str:
    check_mask(first.spec)
    space = deepcopy(first.spec.action)
    space.seed(0)
    actions = [sample(space, first.spec.num_envs) for _ in range(steps)]
    begun = first.reset(
        1
    )  # restoring begins with a reset to seed 0, which must not bring back what was not captured
    started = time.perf_counter()
    *_, now = _played(first, begun.obs, actions[:LEAST])
    actions = actions[: _affordable((time.perf_counter() - started) / LEAST)]
    *_, now = _played(first, now.obs, actions[: len(actions) // 2])
    obs = tree_map(np.copy, now.obs)
    state = first.state_dict()
    generators = global_state()
    if "inexact" in state:
        return str(state["inexact"])
    expected = [_bytes(now) for now in _played(first, obs, actions)]
    for env in (second, first):
        try:
            env.load_state_dict(state)
        except Uncapturable as error:
            return str(error)
        load_global_state(generators)
        if told := _astray(env, obs, actions, expected):
            return told
    return ""


def _astray(env: Env, obs: Obs, actions: list[Array], expected: list[list[bytes]]) -> str:
    """Return how an environment that was restored goes another way than expected; "" where it does not."""
    try:
        for number, (one, now) in enumerate(zip(expected, _played(env, obs, actions), strict=True)):
            if one != _bytes(now):
                return f"{env.spec.id} differs {number + 1} steps after its state was restored: part of it is hidden"
    except RlplugError as error:  # nothing was wrong with the same steps before
        return f"{env.spec.id} raised after its state was restored: {describe(error.__cause__ or error)}"
    return ""


def _affordable(seconds: float) -> int:
    """The steps to compare, where one takes so long: it is played half of them, and then them three times."""
    return max(LEAST, int(ENOUGH / 3.5 / seconds))


def _played(env: Env, obs: Obs, actions: list[Array]) -> Iterator[Timestep]:
    """Play `actions` after `obs`, with the next allowed choices where a mask forbids one, and return the results."""
    for action in actions:
        mask = mask_of(env.spec, obs)
        try:
            now = env.step(action if mask is None else legal(env.spec.action, action, mask))
        except RlplugError:
            raise
        except Exception as error:  # an environment may raise anything
            where = f"{env.spec.id} raised in {_called(error)}(), tried before training"
            raise PluginError(f"{where}: {describe(error)}; --traceback shows where") from error
        obs = now.obs
        yield now


def _called(error: BaseException) -> str:
    """Return which method of an environment an exception came through last, "reset" where a step begins an episode."""
    found = "step"
    frames = error.__traceback__
    while frames is not None:
        name = frames.tb_frame.f_code.co_name
        owner = frames.tb_frame.f_locals.get("self")
        # By its owner: a clock of an environment's may have a `reset`, too.
        if name in ("reset", "step") and isinstance(
            owner, gymnasium.Env | VectorEnv | Parallel | Turns
        ):
            found = name
        frames = frames.tb_next
    return found


def _bytes(timestep: Timestep) -> list[bytes]:
    """Everything the timestep says, so that equal means equal to the bit."""
    found: list[bytes] = [f"{timestep.episodes} {timestep.ended} {timestep.count}".encode()]
    trees: list[object] = [
        timestep.obs,
        timestep.final_obs,
        timestep.reward,
        timestep.terminated,
        timestep.truncated,
    ]
    trees += [timestep.is_first, timestep.valid]
    while trees:
        tree = trees.pop()
        if isinstance(tree, dict):
            trees.extend(tree.values())
        else:
            found.append(np.asarray(tree).tobytes())
    return found
