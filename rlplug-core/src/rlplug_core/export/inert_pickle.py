"""Reads a pickle as plain records: no class is imported, and no function is called.

The module `pickletools` splits the file into its instructions. Those that would build objects of a class make a
`Record` with the name of the class instead, and arrays of NumPy are decoded from the records of their parts. The module
`pickle` is not used, even with all classes forbidden: the hash of a key in a hostile file can take forever.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlplug_core.types import Array

#: The most instructions of a file.
MOST = 1_000_000
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_EMPTY: dict[str, Callable[[], object]] = {
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
}
_MARK = object()


@dataclass
class Record:
    """A record of an object that was not constructed: the name of its class, its arguments and its state.

    Attributes:
        name: the module and the class, such as `numpy.dtype`.
    """

    name: str
    args: Any = ()
    state: Any = None


def read_pickle(data: bytes) -> Any:
    """Return the content of a pickle with records in place of objects.

    Raises:
        ValueError: it is damaged, too long, or has an instruction that the files of Stable-Baselines3 do not have.
    """
    machine = _Machine()
    try:
        for count, (code, value, _) in enumerate(pickletools.genops(data)):
            if count > MOST:
                raise ValueError(f"it has more than {MOST:,} instructions")
            if code.name == "STOP":
                return machine.stack.pop()
            machine.step(code.name, value)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its instructions do not fit each other") from error
    raise ValueError("it has no end")


class _Machine:
    """The stack and the memory of the instructions."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, object] = {}

    def step(self, name: str, value: Any) -> None:
        """Follow one instruction; raises ValueError for an unknown one."""
        if name in ("PROTO", "FRAME"):
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self.stack.append(value)
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            self.memory[len(self.memory) if value is None else value] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memory[value])
        elif name in _COMBINE:
            _COMBINE[name](self)
        else:
            raise ValueError(f"it has the instruction {name}")

    def pop_to_mark(self) -> list[object]:
        """Remove the last mark and the values after it; return the values."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError(place)
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def tuple_of(self, count: int) -> None:
        values = [self.stack.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def extend(self, values: list[object]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target += values

    def update(self, values: list[object]) -> None:
        target = self.stack[-1]
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Items of a record and keys that are not strings are never read.
            if isinstance(target, dict) and isinstance(key, str):
                target[key] = value

    def name_class(self) -> None:
        name = self.stack.pop()
        self.stack.append(Record(f"{self.stack.pop()}.{name}"))

    def construct(self) -> None:
        args = self.stack.pop()
        self.stack.append(Record(self.stack.pop().name, args))

    def build(self) -> None:
        state = self.stack.pop()
        self.stack[-1].state = state


_COMBINE: dict[str, Callable[[_Machine], None]] = {
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "APPEND": lambda machine: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine: machine.extend(machine.pop_to_mark()),
    "ADDITEMS": lambda machine: machine.extend(machine.pop_to_mark()),
    "FROZENSET": lambda machine: machine.stack.append(machine.pop_to_mark()),
    "SETITEM": lambda machine: machine.update([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine: machine.update(machine.pop_to_mark()),
    "STACK_GLOBAL": _Machine.name_class,
    "REDUCE": _Machine.construct,
    "NEWOBJ": _Machine.construct,
    "BUILD": _Machine.build,
}


def array_of(value: Any) -> Array:
    """Return the array that a record describes, as float64.

    Raises:
        ValueError: it is not an array of floats.
    """
    try:
        if value.name.endswith("._reconstruct"):
            _, shape, kind, _, data = value.state
        else:
            data, kind, shape, _ = value.args  # `_frombuffer`, in pickles of protocol 5
        name = str(kind.args[0])
        order = kind.state[1]
        if name not in ("f8", "f4") or order not in ("<", ">", "="):
            raise ValueError("an array does not have floats")
        if not isinstance(data, bytes | bytearray):  # `bytes` of a number has that length
            raise ValueError("an array has no data")
        return np.frombuffer(data, np.dtype(f"{order}{name}")).reshape(shape).astype(np.float64)
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError("an array has another form") from error
