"""Parse whole numbers as people write them (1000000, 1_000_000, 1e6, 1M, 50k), and format returns."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from numbers import Integral, Real
from typing import Protocol, runtime_checkable

from rlplug_core.errors import UsageError, plain

#: Factors of the letters after a number.
LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}
#: The maximum number of digits; 1e999999999 would take a gigabyte of memory.
MOST_DIGITS = 300


@runtime_checkable
class SupportsList(Protocol):
    """An array, a tensor or a numpy number, which can be converted to Python lists and numbers."""

    def tolist(self) -> object: ...


def whole_number(text: str) -> int:
    """Return the whole number in a string.

    Raises:
        ValueError: the text is not a whole number.
    """
    word = text.strip().lower()
    try:
        return int(word)
    except ValueError:
        match = re.fullmatch(r"([\d_.e+]+?)([kmbg]?)", word)
        if match is None:
            raise
        try:
            # Decimal, because 4.1 * 10**6 is not a whole float.
            number = Decimal(match[1]) * LETTERS.get(match[2], 1)
        except ArithmeticError:  # of Decimal
            raise ValueError(f"{text} is not a number") from None
        if number.adjusted() > MOST_DIGITS or number != number.to_integral_value():
            raise ValueError(f"{text} is not a whole number") from None
        return int(number)


def figures(value: float) -> str:
    """Format a return: with one decimal, or with three significant figures if it is small.

    The environment variable `RLPLUG_DECIMALS` sets another number of decimals for all returns.

    Raises:
        UsageError: the variable is not a number from 0 to 9.
    """
    decimals = os.environ.get("RLPLUG_DECIMALS", "")
    if decimals in set("0123456789"):
        return f"{value:,.{decimals}f}"
    if decimals:
        raise UsageError(
            f"RLPLUG_DECIMALS is '{plain(decimals)}'; give a number of decimals from 0 to 9"
        )
    return f"{value:,.1f}" if abs(value) >= 10 or value == round(value, 1) else f"{value:.3g}"


def plain_number(value: object, kind: str) -> object:
    """Convert an option's value to plain Python: arrays, NumPy numbers, and 1e6 for a whole number.

    A path becomes a string, and one string becomes a list if the option takes several. Values of other types are
    returned unchanged; the type check refuses them.

    Args:
        kind: the option's type, as in `Option.type`.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, SupportsList):
        value = value.tolist()
    if isinstance(value, str):
        return [value] if kind in ("strs", "repeated") else value
    if isinstance(value, list | tuple) and kind in ("ints", "floats"):
        return [plain_number(item, kind[:-1]) for item in value]
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if kind in ("int", "ints") and number.is_integer() else number
