"""Restores captured state into an environment that was built the same way."""

from __future__ import annotations

import json
import random
import sys
import types
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from gymnasium import spaces

from rlplug_core.types import Array, GymEnv
from rlplug_envs.capture.state_format import (
    KIND,
    PLAIN_SIZE,
    RECTANGLE,
    Captured,
    Path,
    Uncapturable,
    build_generator,
    constant_attributes,
    describe_path,
    enum_member,
    module_name,
    read_path,
    subspaces,
    type_name,
)
from rlplug_envs.families import ale, mujoco
from rlplug_envs.raw_return import RawReturn

#: A record: a dictionary that is marked as an encoded value of another type.
Record: TypeAlias = dict[str, "Captured"]
#: Packages that do not belong to one environment.
GENERAL = frozenset({"", "builtins", "gymnasium", "numpy", "rlplug_core", "rlplug_envs"})
#: The type of a simulator's object and its name in messages, by the kind of its record.
SIMULATOR_TYPES = {
    "simulation": (mujoco.DATA, "MuJoCo simulation"),
    "model": (mujoco.MODEL, "MuJoCo model"),
    "rectangle": (RECTANGLE, "rectangle"),
    "arcade": (ale.INTERFACE, "Atari game"),
}


def restore(root: object, state: object) -> None:
    """Put `root`, built like the captured environment, into the captured state.

    Raises:
        Uncapturable: `root` differs from the captured environment.
    """
    Decoder().decode(cast("Captured", state), root, ())


class Decoder:
    """Builds values from states; environments, objects and spaces change in place, so it needs their current values."""

    def __init__(self) -> None:
        self.values: dict[Path, object] = {}  # decoded values that may occur again, by path
        #: Stored arrays and strings, for later ones with equal content.
        self.contents: dict[Path, Array | str] = {}
        self.filled: set[int] = set()  # ids of objects in `values`
        self.packages: set[str] = set()  # packages with classes of filled objects

    def decode(self, state: Captured, current: object, path: Path) -> object:
        """Return the value of a state; `current` is the value that the environment has now."""
        if isinstance(state, list):
            values: list[object] = []
            self.values[path] = values
            values.extend(self._decode_items(state, current, path))
            return values
        if isinstance(state, dict):
            if KIND in state:
                return self._decode_record(state, current, path)
            return self._decode_dict(state, current, path)
        if isinstance(state, np.ndarray):
            self.values[path] = self._read_array(state, path)
            return self.values[path]
        return state

    def _decode_items(
        self,
        states: Captured,
        current: object,
        path: Path,
    ) -> list[object]:
        """Return the values of a list of states, or of a packed list."""
        if isinstance(states, dict):
            return self._unpack(states, path)
        assert isinstance(states, list)
        if isinstance(current, list | tuple | deque) and len(current) == len(states):
            current_items: Sequence[object] = current
        else:
            current_items = [None] * len(states)
        return [
            self.decode(state, current_items[number], (*path, str(number)))
            for number, state in enumerate(states)
        ]

    def _unpack(self, record: Record, path: Path) -> list[object]:
        """Return the plain values that were packed into an array or a string."""
        if record[KIND] == "numbers":
            content = self._read_content(record["array"], path)
        elif record[KIND] == "text":
            content = self._read_text(record, path)
        else:
            content = self._equal_content(record)
        return json.loads(content) if isinstance(content, str) else content.tolist()

    def _read_content(self, state: Captured, path: Path) -> Array | str:
        """Return a stored array, and remember it for equal ones; for an equal one, return the array stored earlier."""
        if isinstance(state, dict):
            return self._equal_content(state)
        self.contents[path] = array = np.asarray(state)
        return array

    def _read_text(self, record: Record, path: Path) -> str:
        self.contents[path] = text = str(record["text"])
        return text

    def _equal_content(self, record: Record) -> Array | str:
        return self.contents[read_path(record)]

    def _read_array(self, state: Captured, path: Path) -> Array:
        """Return a copy of a stored array."""
        return np.array(self._read_content(state, path))

    def _decode_dict(
        self,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        values: dict[str, object] = {}
        self.values[path] = values
        current_dict = current if isinstance(current, dict) else {}
        for key, inner in state.items():
            values[key] = self.decode(inner, current_dict.get(key), (*path, key))
        return values

    def _decode_record(
        self,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        """Decode a marked dictionary; the order of kinds is that of the encoder."""
        kind = state[KIND]
        if kind == "int":
            return int(str(state["value"]), 16)
        if kind == "float":
            return float(str(state["value"]))
        if kind == "text":
            return self._read_text(state, path)
        if kind == "scalar":
            return self._decode_array(state["value"], path)[0]
        if kind == "enum":
            return enum_member(state, current, path)
        if kind == "kept":
            if current is None:
                raise Uncapturable(
                    f"{describe_path(path)} is missing in the environment to restore"
                )
            return current
        if kind == "tuple":
            return tuple(self._decode_items(state["items"], current, path))
        if kind == "bytes":
            return self._read_array(state["value"], path).astype(np.uint8).tobytes()
        if kind == "same":
            return self.values[read_path(state)]
        return self._decode_object(str(kind), state, current, path)

    def _decode_object(
        self,
        kind: str,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        """Decode an object with an identity, and remember it for a second occurrence."""
        fill = FILLERS.get(kind)
        if fill is not None:
            return fill(self, state, current, path)
        value: object
        if kind == "equal":
            content = self._equal_content(state)
            value = content if isinstance(content, str) else content.copy()
        elif kind == "array":
            value = self._decode_array(state, path)
        elif kind == "list":
            value = self._decode_items(state["items"], current, path)
        elif kind == "deque":
            length = cast("int | None", state["maxlen"])
            value = deque(self._decode_items(state["items"], current, path), length)
        else:
            value = self._decode_generator(kind, state, path)
        self.values[path] = value
        return value

    def _decode_generator(
        self,
        kind: str,
        state: Record,
        path: Path,
    ) -> object:
        """Decode a random generator of NumPy or Python."""
        if kind == "generator":
            return build_generator(self._generator_state(state, path), path)
        if kind == "legacy":
            legacy = np.random.RandomState()
            legacy.set_state(self._generator_state(state, path))
            return legacy
        if kind == "random":
            python_generator = random.Random()
            generator_state = self.decode(state["state"], None, path)
            python_generator.setstate(cast("tuple[object, ...]", generator_state))
            return python_generator
        raise Uncapturable(
            f"{describe_path(path)} was saved as '{kind}', which this version does not know"
        )

    def _generator_state(self, state: Record, path: Path) -> dict[str, object]:
        """Return the decoded state of a generator of NumPy."""
        return cast("dict[str, object]", self.decode(state["state"], None, path))

    def _decode_array(self, state: Captured, path: Path) -> Array:
        """Return an array that was stored unchanged, or as bytes."""
        if isinstance(state, dict) and state[KIND] == "array":
            data = self._read_array(state["data"], path).astype(np.uint8).tobytes()
            flat = np.frombuffer(data, np.dtype(str(state["dtype"])))
            shape = cast("list[int]", state["shape"])
            order = cast('Literal["C", "F"]', state["order"])
            return flat.reshape(shape, order=order).copy("K")
        return self._read_array(state, path)

    def _fill_object(
        self,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        if isinstance(current, RawReturn):
            current.env = cast("GymEnv", self.decode(state, current.env, path))
            self.values[path] = current
            return current
        name = str(state["type"])
        if type_name(type(current)) != name or id(current) in self.filled:
            current = self._build_object(name, current, path)
        self.values[path] = current
        self.filled.add(id(current))
        self.packages.add(module_name(type(current)).partition(".")[0])
        attributes = vars(current)
        saved = cast("Record", state["attributes"])
        if not all(isinstance(name, str) for name in saved):
            raise Uncapturable(f"{describe_path(path)} has an attribute without a name")
        values = {
            name: self.decode(part, attributes.get(name), (*path, name))
            for name, part in saved.items()
        }
        for name in attributes.keys() - values.keys() - constant_attributes(type(current)):
            del attributes[name]
        attributes.update(values)
        return current

    def _build_object(self, name: str, current: object, path: Path) -> object:
        """Return an empty object of a class of the environment's package, for objects that a new environment lacks.

        No code of the class runs: it is plain Python, imported already, and other objects of its package were filled.
        """
        module, _, qualified = name.rpartition(".")
        kind = getattr(sys.modules.get(module), qualified, None)
        is_known = module.partition(".")[0] in self.packages - GENERAL
        if not is_known or not isinstance(kind, type) or kind.__basicsize__ != PLAIN_SIZE:
            raise Uncapturable(
                f"{describe_path(path)} was a {name}, here it is a {type_name(type(current))}"
            )
        return object.__new__(kind)

    def _fill_space(
        self,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        if not isinstance(current, spaces.Space):
            raise Uncapturable(
                f"{describe_path(path)} was a space, here it is a {type_name(type(current))}"
            )
        self.values[path] = current
        random_path = (*path, "random")
        current._np_random = cast(
            "np.random.Generator", self.decode(state["random"], None, random_path)
        )
        states = cast("list[Captured]", state["parts"])
        for number, (part, inner) in enumerate(zip(states, subspaces(current), strict=True)):
            self.decode(part, inner, (*path, str(number)))
        return current

    def _fill_simulator(
        self,
        state: Record,
        current: Any,
        path: Path,
    ) -> object:
        """Put an object of a simulator package, or a pygame rectangle, into its captured state."""
        kind = str(state[KIND])
        name, noun = SIMULATOR_TYPES[kind]
        if type_name(type(current)) != name:
            raise Uncapturable(
                f"{describe_path(path)} was a {noun}, here it is a {type_name(type(current))}"
            )
        if kind == "simulation":
            mujoco.restore_data(current, state)
        elif kind == "rectangle":
            current.update(*cast("list[int]", state["sides"]))
        elif kind == "arcade":
            ale.restore_game(current, cast("Array", state["state"]))
        elif mujoco.fingerprint(current) != state["digest"]:
            raise Uncapturable(
                f"{describe_path(path)} is not the MuJoCo model that was captured; it changes during use"
            )
        self.values[path] = current
        return current

    def _fill_closure(
        self,
        state: Record,
        current: object,
        path: Path,
    ) -> object:
        """Keep the code of a function, and restore the variables of the function around it."""
        if not isinstance(current, types.FunctionType) or current.__qualname__ != state["name"]:
            raise Uncapturable(
                f"{describe_path(path)} was the function {state['name']}, here it is {current!r}"
            )
        self.values[path] = current
        cells = current.__closure__ or ()
        contents = [cell.cell_contents for cell in cells]
        values = self._decode_items(state["cells"], contents, path)
        for cell, value in zip(cells, values, strict=True):
            cell.cell_contents = value
        return current

    def _fill_dict(self, state: Record, current: object, path: Path) -> object:
        values: dict[object, object] = {}
        self.values[path] = values
        current_dict = current if isinstance(current, dict) else {}
        keys = self._decode_items(state["keys"], None, (*path, "keys"))
        inner = self._decode_items(state["values"], [current_dict.get(key) for key in keys], path)
        values.update(zip(keys, inner, strict=True))
        return values


#: How objects that keep their identity are filled, by the kind of their record.
FILLERS = {
    "object": Decoder._fill_object,
    "space": Decoder._fill_space,
    "closure": Decoder._fill_closure,
    "dict": Decoder._fill_dict,
    **dict.fromkeys(SIMULATOR_TYPES, Decoder._fill_simulator),
}
