"""Schedules: pure functions of the clock's progress in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

Schedule: TypeAlias = Callable[[float], float]


def constant(value: float) -> Schedule:
    """`value` throughout."""
    return lambda progress: value


def linear(start: float, end: float, until: float = 1.0) -> Schedule:
    """From `start` to `end` in a straight line, reached at progress `until` and kept from there."""
    return lambda progress: start + (end - start) * min(1.0, progress / until)


def cosine(start: float, end: float) -> Schedule:
    """From `start` to `end` along half a cosine (Loshchilov and Hutter, 2017, arXiv:1608.03983)."""
    return lambda progress: end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def piecewise(points: Sequence[tuple[float, float]]) -> Schedule:
    """Straight lines between `(progress, value)` points; constant before the first and after the last."""
    ordered = sorted(points)

    def at(progress: float) -> float:
        if progress <= ordered[0][0]:
            return ordered[0][1]
        for (x0, y0), (x1, y1) in pairwise(ordered):
            if progress <= x1:
                return y0 + (y1 - y0) * (progress - x0) / (x1 - x0)
        return ordered[-1][1]

    return at
