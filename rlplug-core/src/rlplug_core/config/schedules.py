"""Schedules: pure functions of the clock's progress in [0, 1]."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

from rlplug_core.errors import BadConfig

#: A number as a function of the run's progress, from 0 to 1.
Schedule: TypeAlias = Callable[[float], float]

#: A schedule as a user types it; also without the closing bracket, so that it gets a message about schedules.
PATTERN = re.compile(r"\s*(constant|linear|cosine|piecewise)\s*\((.*?)(\)?)\s*", re.S)
FORMS = "constant(a), linear(a,b), linear(a,b,until), cosine(a,b) or piecewise(0:a,0.5:b,1:c)"


@dataclass(frozen=True)
class Constant:
    """The schedule that always returns `value`; code that gets one does not have to call it at every step."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


def constant(value: float) -> Schedule:
    """Return the schedule that is always `value`."""
    return Constant(value)


def throughout(value: Schedule | float) -> Schedule:
    """Return a number as a constant schedule; a schedule unchanged."""
    return value if callable(value) else constant(value)


def linear(start: float, end: float, until: float = 1.0) -> Schedule:
    """Return the schedule from `start` to `end` in a straight line; it stays at `end` after progress `until`."""
    return lambda progress: start + (end - start) * min(1.0, progress / until)


def cosine(start: float, end: float) -> Schedule:
    """Return the schedule from `start` to `end` along half a cosine (Loshchilov and Hutter, 2017, arXiv:1608.03983)."""
    return lambda progress: (
        end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    )


def piecewise(points: Sequence[tuple[float, float]]) -> Schedule:
    """Return straight lines between `(progress, value)` points, constant before the first and after the last.

    Two points at one progress make a jump: the first value up to it, the second value after it.
    """
    ordered = sorted(points, key=itemgetter(0))

    def at(progress: float) -> float:
        if progress <= ordered[0][0]:
            return ordered[0][1]
        for (x0, y0), (x1, y1) in pairwise(ordered):
            if progress <= x1:
                return y0 + (y1 - y0) * (progress - x0) / (x1 - x0)
        return ordered[-1][1]

    return at


@dataclass(frozen=True)
class ParsedSchedule:
    """A schedule that a user typed in place of a number; `values` are its first value and the numbers in its text."""

    text: str
    schedule: Schedule
    values: tuple[float, ...]


def parse_schedule(text: object) -> ParsedSchedule | None:
    """Parse an option's value as a schedule; return None if it does not look like one.

    Raises:
        BadConfig: its arguments cannot be understood.
    """
    match = PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    kind, inside, closed = match.groups()
    try:
        if not closed:
            raise ValueError("a bracket is not closed")
        schedule, values = _piecewise(inside) if kind == "piecewise" else _curve(kind, inside)
    except (ValueError, TypeError) as error:
        raise BadConfig(f"'{match.string.strip()}' is not a schedule; write {FORMS}") from error
    return ParsedSchedule(match.string.strip(), schedule, (schedule(0.0), *values))


def _curve(kind: str, inside: str) -> tuple[Schedule, tuple[float, ...]]:
    numbers = tuple(map(_number, inside.split(",")))
    makers: dict[str, Callable[..., Schedule]] = {
        "constant": constant,
        "linear": linear,
        "cosine": cosine,
    }
    if len(numbers) == 3 and not 0 < numbers[2] <= 1:
        raise ValueError("a share of the run")
    return makers[kind](*numbers), numbers[:2]


def _piecewise(inside: str) -> tuple[Schedule, tuple[float, ...]]:
    points = []
    for point in inside.split(","):
        at, value = point.split(":")
        points.append((_number(at), _number(value)))
    shares = [at for at, _ in points]
    if not all(0 <= at <= 1 for at in shares) or len(set(shares)) < len(shares):
        raise ValueError("shares of the run, each once")
    return piecewise(points), tuple(value for _, value in points)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
