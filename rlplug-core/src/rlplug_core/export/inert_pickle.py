"""Reads a pickle as plain records: no class is imported, and no function is called.

`pickletools` checks the instructions first. Then `pickle` follows them, with a `Record` in place of each object of a
class. Arrays of NumPy are decoded from their records.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np

from rlplug_core.types import Array

#: The most instructions of a file, and the most classes and functions that it may name.
MOST = 1_000_000
MOST_NAMES = 10_000
#: The instructions in files of Stable-Baselines3.
INSTRUCTIONS = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT"),
        *("BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE"),
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "FROZENSET"),
        *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "ADDITEMS", "SETITEM"),
        *("SETITEMS", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD"),
    )
)


class Record:
    """An object that was not constructed; the items of lists and dictionaries with a class of their own are lost.

    Attributes:
        name: the module and the name of its class or function, such as `numpy.dtype`.
        args: the arguments of the call that would construct it.
        state: the state that it would get, such as its attributes.
    """

    name: ClassVar[str]
    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: Any) -> Record:
        record = super().__new__(cls)
        record.args = args
        return record

    def __setstate__(self, state: object) -> None:
        self.state = state

    def extend(self, items: object) -> None: ...
    def __setitem__(self, key: object, item: object) -> None: ...


class _Unpickler(pickle.Unpickler):
    """Makes a kind of record for each class or function, and imports none."""

    def find_class(self, module: str, name: str) -> Any:
        return type("Record", (Record,), {"name": f"{module}.{name}"})


def read_pickle(data: bytes) -> Any:
    """Return the content of a pickle with records in place of objects.

    Raises:
        ValueError: it is damaged, too long, or has an instruction that the files of Stable-Baselines3 do not have.
    """
    _check_instructions(data)
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError) as error:
        raise ValueError("its instructions do not fit each other") from error


def _check_instructions(data: bytes) -> None:
    """Raise ValueError for instructions that `pickle` must not follow, or that would take too much time or memory."""
    names = 0
    for count, (code, value, _) in enumerate(pickletools.genops(data)):
        if count > MOST:
            raise ValueError(f"it has more than {MOST:,} instructions")
        if code.name not in INSTRUCTIONS:
            raise ValueError(f"it has the instruction {code.name}")
        # `pickle` allocates a table up to this place.
        if code.name == "LONG_BINPUT" and int(value or 0) > MOST:
            raise ValueError(f"it stores more than {MOST:,} values")
        names += code.name == "STACK_GLOBAL"
    if names > MOST_NAMES:
        raise ValueError(f"it names more than {MOST_NAMES:,} classes and functions")


def array_of(value: Any) -> Array:
    """Return the array of a record, as float64.

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
        return (
            np.frombuffer(bytes(data), np.dtype(f"{order}{name}")).reshape(shape).astype(np.float64)
        )
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError("an array has another form") from error
