"""Captures the state of Gymnasium environments explicitly, attribute by attribute, without pickle.

A state is a tree of arrays, numbers, strings, booleans and None that survives JSON and array files; nothing in it can
run code. `rlplug_envs.capture.decoder.restore` puts it into an environment that was built the same way. A value that
cannot be captured faithfully raises `Uncapturable` with the attribute's name: a guess would be a silently wrong resume.

A capture takes a bounded time: long collections of plain values are packed, equal data of several rows is stored once,
and an environment with too many values, too many bytes or too deep a nesting is refused by the attribute's name.
"""

from __future__ import annotations

import enum
import json
import random
import types
from collections import deque
from collections.abc import Collection, Iterable
from math import isfinite
from typing import Literal, cast

import numpy as np
from gymnasium import spaces

from rlplug_core.types import Array, Space
from rlplug_envs.capture.memory import Blocks, Contents, largest_attribute
from rlplug_envs.capture.state_format import (
    CODE,
    KIND,
    MAX_BITS,
    MAX_DEPTH,
    MAX_VALUES,
    OBJECT_COST,
    OPTIONAL_CODE,
    PACKED_FROM,
    PLAIN_SIZE,
    RECTANGLE,
    SHARED_FROM,
    SIMULATORS,
    STORED,
    VALUES_PER_ROW,
    Captured,
    Path,
    Uncapturable,
    constant_attributes,
    describe_attribute,
    describe_path,
    subspaces,
    type_name,
)
from rlplug_envs.families import ale, mujoco
from rlplug_envs.raw_return import RawReturn

#: Types of plain values, which JSON holds unchanged.
PLAIN = frozenset({bool, int, float, str, types.NoneType})
#: Types of random generators.
GENERATORS = frozenset({np.random.Generator, np.random.RandomState, random.Random})


def capture(root: object) -> Captured:
    """Return the state of an environment, a vector environment or a list of them, through all their wrappers.

    Objects that occur twice, such as a generator shared by wrapper and environment, are shared again after `restore`.

    Raises:
        Uncapturable: a value is not a plain value, array, generator or Python object made of these, or the state is
            too large or nested too deeply.
    """
    rows = len(root) if isinstance(root, list) else 1
    encoder = Encoder(max(MAX_VALUES, VALUES_PER_ROW * rows))
    state = encoder.encode(root, ())
    encoder.blocks.refuse_overlaps()
    return state


class Encoder:
    """Encodes values, and remembers objects and contents that occur again.

    Args:
        max_values: the values that may be encoded; an array counts as several.
    """

    def __init__(self, max_values: int) -> None:
        self.max_values = max_values
        self.values = 0
        #: Path and object by id; the object is kept, so that no other one gets the same id.
        self.seen: dict[int, tuple[Path, object]] = {}
        self.blocks = Blocks()
        self.contents = Contents()

    def encode(self, value: object, path: Path) -> Captured:
        """Return the state of a value; `path` leads to it."""
        self.values += 1
        if type(value) is str:
            return self._store_text(value, path) if len(value) >= SHARED_FROM else value
        if value is None or type(value) is bool:
            return value
        if type(value) is int:
            is_long = value.bit_length() > MAX_BITS
            return {KIND: "int", "value": hex(value)} if is_long else value
        if type(value) is float:
            return value if isfinite(value) else {KIND: "float", "value": repr(value)}
        self._check_limits(path)
        if isinstance(value, RawReturn):
            # Not part of a state, so that states of runs without it fit; the environments save its sum.
            return self.encode(value.env, path)
        if isinstance(value, np.generic):
            return {KIND: "scalar", "value": self._encode_array(np.array([value]), path)}
        if isinstance(value, enum.Enum):
            return {KIND: "enum", "name": value.name}
        if is_code(value):
            return {KIND: "kept"}
        if type(value) is tuple:
            self.values += 1
            return {KIND: "tuple", "items": self._encode_items(value, path)}
        if type(value) is bytes:
            data = np.frombuffer(value, np.uint8)
            return {KIND: "bytes", "value": self._store_array(data, path)}
        if id(value) in self.seen:
            return {KIND: "same", "path": list(self.seen[id(value)][0])}
        self.seen[id(value)] = path, value
        return self._encode_object(value, path)

    def _check_limits(self, path: Path) -> None:
        """Raise Uncapturable if values are nested too deeply, or there are too many."""
        if len(path) > MAX_DEPTH:
            raise Uncapturable(
                f"{describe_attribute(path)} is nested more than {MAX_DEPTH} levels deep, which cannot be captured"
            )
        if self.values > self.max_values:
            sizes = (
                (value_path, 1 + (len(value) if isinstance(value, Collection) else 0))
                for value_path, value in self.seen.values()
                if type(value) is not np.ndarray
            )
            arrays = ((block.path, OBJECT_COST) for block in self.blocks.blocks)
            name = largest_attribute(iter([*sizes, *arrays]))
            raise Uncapturable(
                f"{name} makes the state larger than {self.max_values:,} values, which take too long to capture"
            )

    def _encode_object(self, value: object, path: Path) -> Captured:
        """Encode an object with an identity: it may occur twice."""
        kind = type(value)
        if type(value) is np.ndarray:
            self.blocks.add(value, path)
            return self._encode_array(value, path)
        if type(value) is dict:
            return self._encode_dict(value, path)
        if type(value) is list:
            items = self._encode_items(value, path)
            return items if isinstance(items, list) else {KIND: "list", "items": items}
        if type(value) is deque:
            items = self._encode_items(value, path)
            return {KIND: "deque", "items": items, "maxlen": value.maxlen}
        if isinstance(value, spaces.Space):
            return self._encode_space(value, path)
        if kind in GENERATORS:
            return self._encode_generator(value, path)
        if type_name(kind) in SIMULATORS:
            return encode_simulator(value, path)
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            items = self._encode_items(cells, path)
            return {KIND: "closure", "name": value.__qualname__, "cells": items}
        is_plain = kind.__basicsize__ == PLAIN_SIZE and hasattr(value, "__dict__")
        if is_plain and not owns_resource(kind):
            return self._encode_attributes(value, path)
        raise Uncapturable(
            f"{describe_path(path)} is a {type_name(kind)}, which cannot be captured"
        )

    def _encode_generator(self, value: object, path: Path) -> Captured:
        """Encode a random generator of NumPy or Python."""
        if isinstance(value, np.random.Generator):
            return {KIND: "generator", "state": self.encode(value.bit_generator.state, path)}
        if isinstance(value, np.random.RandomState):
            return {KIND: "legacy", "state": self.encode(value.get_state(legacy=False), path)}
        assert isinstance(value, random.Random)
        return {KIND: "random", "state": self.encode(value.getstate(), path)}

    def _encode_attributes(self, value: object, path: Path) -> Captured:
        self.values += OBJECT_COST
        constant = constant_attributes(type(value))
        attributes: dict[str, Captured] = {
            name: self.encode(inner, (*path, name))
            for name, inner in vars(value).items()
            if name not in constant
        }
        return {KIND: "object", "type": type_name(type(value)), "attributes": attributes}

    def _encode_items(
        self,
        values: Collection[object],
        path: Path,
    ) -> Captured:
        """Return a list of states; for many plain values one array or string."""
        if len(values) >= PACKED_FROM:
            packed = self._pack(values, path)
            if packed is not None:
                return packed
        return [self.encode(value, (*path, str(number))) for number, value in enumerate(values)]

    def _pack(self, values: Iterable[object], path: Path) -> Captured:
        """Return plain values as one array of numbers or one string; None if one of them is not plain."""
        kinds = set(map(type, values))
        if not kinds <= PLAIN:
            return None
        try:
            if kinds == {float}:
                return {KIND: "numbers", "array": self._store_array(np.array([*values]), path)}
            if kinds == {int}:
                array = np.array([*values], np.int64)
                return {KIND: "numbers", "array": self._store_array(array, path)}
        except OverflowError:  # an integer of more than 64 bits
            pass
        try:
            text = json.dumps([*values])
        except ValueError:  # an integer of too many digits
            return None
        return self._store_text(text, path)

    def _encode_dict(
        self,
        value: dict[object, object],
        path: Path,
    ) -> Captured:
        packed = None
        if len(value) >= PACKED_FROM:
            packed = self._pack(value.values(), path)
        if packed is None and KIND not in value and all(type(key) is str for key in value):
            return {str(key): self.encode(inner, (*path, str(key))) for key, inner in value.items()}
        return {
            KIND: "dict",
            "keys": self._encode_items(list(value), (*path, "keys")),
            "values": packed or self._encode_items(list(value.values()), path),
        }

    def _encode_space(self, space: Space, path: Path) -> Captured:
        """Encode the generator that a space samples with, None until it is used; the rest is constant."""
        states: list[Captured] = [
            self._encode_space(part, (*path, str(number)))
            for number, part in enumerate(subspaces(space))
        ]
        generator = self.encode(space._np_random, (*path, "random"))
        return {KIND: "space", "random": generator, "parts": states}

    def _encode_array(self, array: Array, path: Path) -> Captured:
        """Return common C-ordered arrays unchanged; text, long doubles and Fortran order as bytes."""
        self.values += OBJECT_COST
        if array.dtype.hasobject:
            raise Uncapturable(
                f"{describe_path(path)} is an array of objects, which cannot be captured"
            )
        if array.dtype.names:
            raise Uncapturable(
                f"{describe_path(path)} is an array with fields, which cannot be captured"
            )
        if array.dtype.char in STORED and array.dtype.isnative and array.flags.c_contiguous:
            return self._store_array(array, path)
        is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        order: Literal["F", "C"] = "F" if is_fortran else "C"
        data = np.frombuffer(array.tobytes(order=order), np.uint8)
        return {
            KIND: "array",
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "order": order,
            "data": self._store_array(data, path),
        }

    def _store_array(self, array: Array, path: Path) -> Captured:
        """Return a copy of an array; for a large one that equals an earlier one, the path of that."""
        equal_path = self.contents.find_array(array, path)
        return array.copy() if equal_path is None else same_content(equal_path)

    def _store_text(self, text: str, path: Path) -> Captured:
        """Return the record of a string; if it is equal to an earlier one, its path."""
        equal_path = self.contents.find_text(text, path)
        return {KIND: "text", "text": text} if equal_path is None else same_content(equal_path)


def same_content(path: Path) -> Captured:
    """Return the record of an array or string that is equal to one stored at `path`, but another object."""
    return {KIND: "equal", "path": list(path)}


def owns_resource(kind: type) -> bool:
    """Return whether objects of a class free something when they are deleted, and are not environments.

    Their attributes may be handles of a library in C. If one object gets the handles of another, both free them.
    """
    return hasattr(kind, "__del__") and not hasattr(kind, "step")


def is_code(value: object) -> bool:
    """Return whether a value is code, which the restored environment has already."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None
    return isinstance(value, CODE) or type_name(type(value)) in OPTIONAL_CODE


def encode_simulator(value: object, path: Path) -> Captured:
    """Return the state of an object of a simulator package, or of a pygame rectangle."""
    name = type_name(type(value))
    if name == RECTANGLE:
        return {KIND: "rectangle", "sides": [*cast("Iterable[int]", value)]}
    if name == mujoco.DATA:
        return {KIND: "simulation", **mujoco.capture_data(value)}
    if name == mujoco.MODEL:
        return {KIND: "model", "digest": mujoco.fingerprint(value)}
    if reason := ale.hidden_state(value):
        raise Uncapturable(f"{describe_path(path)} {reason}")
    return {KIND: "arcade", "state": ale.capture_game(value)}
