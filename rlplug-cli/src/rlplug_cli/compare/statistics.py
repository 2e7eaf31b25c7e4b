"""Aggregates over runs and tasks with stratified bootstrap intervals, by the definitions of rliable.

Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv:2108.13264. A task
is an environment, a stratum of the bootstrap: each redraw takes as many runs of every task as there are, with
replacement.
`scores` has one array per task, with the score of each run; tasks may have different numbers of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Aggregate = Literal["mean", "iqm", "median"]
#: Aggregates of a point of a curve. A curve has one task, so the median of the tasks' means would equal the mean.
Center = Literal["mean", "iqm"]

#: The most numbers that are in memory at once, 8 MB.
PART = 2**20
#: The share of scores that the interquartile mean leaves out at each end.
TRIM = 0.25


class Estimate(NamedTuple):
    """A number and the interval around it."""

    value: float
    low: float
    high: float


class Band(NamedTuple):
    """A curve and the interval around each of its points, arrays `[T]`."""

    value: Floats
    low: Floats
    high: Floats


class LargeDraws:
    """The redraws of a task of many runs; `parts` draws them again each time, because all at once take gigabytes."""

    def __init__(
        self,
        size: int,
        reps: int,
        generator: np.random.Generator,
    ) -> None:
        self.size = size
        self.reps = reps
        self._generator = deepcopy(generator)
        for rows in _split(reps, max(1, PART // size)):  # later tasks draw after these
            generator.integers(size, size=(rows, size))

    def parts(self, rows: int) -> Iterator[Indices]:
        generator = deepcopy(self._generator)
        for count in _split(self.reps, rows):
            yield generator.integers(self.size, size=(count, self.size))


#: Which runs each redraw of a task takes, `[reps, size]`.
Draws: TypeAlias = Indices | LargeDraws


def draws(
    sizes: Sequence[int],
    reps: int,
    generator: np.random.Generator,
) -> list[Draws]:
    """Return which runs each of `reps` redraws takes, for each task."""
    return [
        LargeDraws(size, reps, generator)
        if reps * size > PART
        else generator.integers(size, size=(reps, size))
        for size in sizes
    ]


def _parts(
    drawn: Sequence[Draws],
    width: int,
) -> Iterator[tuple[Indices, ...]]:
    """Yield the redraws of all tasks in parts; a redraw needs `width` numbers of memory."""
    rows = max(1, PART // width)
    return zip(*(_parts_of_task(task, rows) for task in drawn), strict=True)


def _parts_of_task(drawn: Draws, rows: int) -> Iterator[Indices]:
    if isinstance(drawn, LargeDraws):
        return drawn.parts(rows)
    return (drawn[start : start + rows] for start in range(0, len(drawn), rows))


def _split(count: int, size: int) -> Iterator[int]:
    """Yield the sizes of the parts of `count`, each at most `size`."""
    return (min(size, count - start) for start in range(0, count, size))


def aggregate(scores: Sequence[Floats], how: Aggregate) -> float:
    """Return one number for all runs `[n]` of all tasks.

    `mean` is the mean of the tasks' means, `median` the median of the tasks' means, `iqm` the mean of the middle half
    of the scores of all tasks.
    """
    return float(_aggregate_redraws([task[None, :] for task in scores], how)[0])


def estimate(
    scores: Sequence[Floats],
    how: Aggregate,
    drawn: Sequence[Draws],
    confidence: float = 0.95,
) -> Estimate:
    """Return the aggregate with its percentile interval over the redraws that `draws` made."""
    redrawn = []
    for part in _parts(drawn, sum(map(len, scores))):
        taken = [task[index] for task, index in zip(scores, part, strict=True)]
        redrawn.append(_aggregate_redraws(taken, how))
    low, high = _interval(np.concatenate(redrawn), confidence)
    return Estimate(aggregate(scores, how), float(low), float(high))


def band(
    curves: Floats,
    how: Center,
    drawn: Draws,
    confidence: float = 0.95,
) -> Band:
    """Return the aggregate of each point of the curves `[n, T]` of one task, with its pointwise percentile interval.

    A point without a value in a curve has no estimate.
    """
    cut = _cut(len(curves))
    redrawn = []
    for (index,) in _parts([drawn], len(curves)):
        counts = _counts(index, len(curves))
        means = counts @ curves / len(curves)
        redrawn.append(means if how == "mean" else _iqm_values(curves, counts, cut))
    if how == "mean":
        value = curves.mean(axis=0)
    else:
        value = np.sort(curves, axis=0)[cut : len(curves) - cut].mean(axis=0)
    missing = np.isnan(curves).any(axis=0)  # a sort puts NaN last, and the IQM would leave it out
    interval = _interval(np.concatenate(redrawn), confidence)
    return Band(*(np.where(missing, np.nan, values) for values in (value, *interval)))


def probability_of_improvement(
    better: Sequence[Floats],
    worse: Sequence[Floats],
    drawn: tuple[Sequence[Draws], Sequence[Draws]],
    confidence: float = 0.95,
) -> Estimate:
    """Estimate how likely a run of `better` scores above one of `worse` on a task, averaged over tasks.

    A tie counts as half. This is the Mann-Whitney U statistic over the number of pairs; both sides are redrawn
    independently.
    """
    values = []
    redrawn = []
    for better_task, worse_task, better_drawn, worse_drawn in zip(
        better, worse, *drawn, strict=True
    ):
        pairs = len(better_task) * len(worse_task)
        single = np.ones((1, len(better_task))), np.ones((1, len(worse_task)))
        values.append(_count_wins(better_task, worse_task, *single)[0] / pairs)
        wins = []
        for better_index, worse_index in _parts(
            [better_drawn, worse_drawn], len(better_task) + len(worse_task)
        ):
            counts = _counts(better_index, len(better_task)), _counts(worse_index, len(worse_task))
            wins.append(_count_wins(better_task, worse_task, *counts))
        redrawn.append(np.concatenate(wins) / pairs)
    low, high = _interval(np.mean(redrawn, axis=0), confidence)
    return Estimate(float(np.mean(values)), float(low), float(high))


def _count_wins(
    ours: Floats,
    theirs: Floats,
    our_counts: Floats,
    their_counts: Floats,
) -> Floats:
    """Return the number of pairs of runs that `ours` win in each redraw; a tie counts as half.

    In the order of their values, the number of lower ones among `theirs` is a running sum of counts. All numbers are
    whole or half, so the sums are exact.
    """
    order = np.argsort(theirs)
    ordered = theirs[order]
    sums = np.cumsum(their_counts[:, order], axis=1)
    below = np.pad(sums, ((0, 0), (1, 0)))
    lower = below[:, np.searchsorted(ordered, ours, "left")]
    not_higher = below[:, np.searchsorted(ordered, ours, "right")]
    wins = np.where(np.isnan(ours), 0.0, 0.5 * (lower + not_higher))
    return (our_counts * wins).sum(axis=1)


def _aggregate_redraws(scores: Sequence[Floats], how: Aggregate) -> Floats:
    """Return the aggregate of each redraw; scores are `[reps, n]` per task."""
    if how == "iqm":
        ordered = np.sort(np.concatenate(scores, axis=1), axis=1)
        cut = _cut(ordered.shape[1])
        return ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    means = np.stack([task.mean(axis=1) for task in scores])
    return means.mean(axis=0) if how == "mean" else np.median(means, axis=0)


def _cut(count: int) -> int:
    """Return the number of scores to leave out at each end."""
    return int(TRIM * count)


def _counts(drawn: Indices, size: int) -> Floats:
    """Return the number of times that each redraw takes each run, `[reps, size]`."""
    reps = len(drawn)
    positions = (drawn + size * np.arange(reps)[:, None]).ravel()
    return np.bincount(positions, minlength=reps * size).reshape(reps, size).astype(np.float64)


def _iqm_values(curves: Floats, counts: Floats, cut: int) -> Floats:
    """Return the trimmed mean of every redraw at every point, `[reps, T]`, without sorting each redraw.

    In the order of their values, the runs of a redraw fill positions 0 to n. F_i, the number of copies of the first i
    runs between positions `cut` and `n - cut`, comes from the running sum of the counts. Run i counts F_i - F_(i-1)
    times, so that the sum over runs is, by parts, F_n v_n - F_0 v_1 - sum F_i (v_(i+1) - v_i).
    """
    size = len(curves)
    order = np.argsort(curves, axis=0)
    by_run = np.ascontiguousarray(counts.T)
    trimmed = np.empty((len(counts), curves.shape[1]))
    for point, by_value in enumerate(order.T):
        filled = by_run[by_value[:-1]]
        values = curves[by_value, point]
        np.cumsum(filled, axis=0, out=filled)
        np.clip(filled, cut, size - cut, out=filled)
        trimmed[:, point] = (size - cut) * values[-1] - cut * values[0] - np.diff(values) @ filled
    return trimmed / (size - 2 * cut)


def _interval(redrawn: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return the middle `confidence` of the redraws, along their first axis."""
    tail = 50 * (1 - confidence)
    low, high = np.percentile(redrawn, [tail, 100 - tail], axis=0)
    return low, high
