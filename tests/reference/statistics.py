"""Aggregates and their bootstrap by loops over redraws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean(tasks: Sequence[Sequence[float]]) -> float:
    """The mean of the tasks' means."""
    return sum(sum(task) / len(task) for task in tasks) / len(tasks)


def iqm(tasks: Sequence[Sequence[float]]) -> float:
    """The mean of all scores without the lowest and the highest quarter of them."""
    scores = sorted(score for task in tasks for score in task)
    cut = len(scores) // 4
    middle = scores[cut : len(scores) - cut]
    return sum(middle) / len(middle)


def median(tasks: Sequence[Sequence[float]]) -> float:
    """The median of the tasks' means."""
    return float(np.median([sum(task) / len(task) for task in tasks]))


def improvement(better: Sequence[Sequence[float]], worse: Sequence[Sequence[float]]) -> float:
    """The share of pairs that the better side wins, ties as halves, averaged over tasks."""
    shares = []
    for ours, theirs in zip(better, worse, strict=True):
        wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in ours for b in theirs]
        shares.append(sum(wins) / len(wins))
    return sum(shares) / len(shares)


def interval(
    statistic: Callable[[list[list[float]]], float], tasks: Sequence[Floats], drawn: Sequence[NDArray[np.intp]]
) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile of a statistic over redraws."""
    found = []
    for rep in range(len(drawn[0])):
        found.append(
            statistic([[float(task[i]) for i in index[rep]] for task, index in zip(tasks, drawn, strict=True)])
        )
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
