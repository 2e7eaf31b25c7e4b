"""Aggregates over runs and tasks with stratified bootstrap intervals, by the definitions of rliable.

Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv:2108.13264. A task
is an environment, a stratum of the bootstrap: each redraw takes as many runs of every task as there are, with
replacement.
`scores` are one array of runs per task; tasks may have different numbers of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Aggregate = Literal["mean", "iqm", "median"]
#: Aggregates of a curve's point; with one task the median of the tasks' means would be its mean.
Center = Literal["mean", "iqm"]

#: The share of scores that the interquartile mean leaves out at either end.
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


def draws(sizes: Sequence[int], reps: int, generator: np.random.Generator) -> list[Indices]:
    """Return which runs each of `reps` redraws takes, one array `[reps, size]` per task."""
    return [generator.integers(size, size=(reps, size)) for size in sizes]


def aggregate(scores: Sequence[Floats], how: Aggregate) -> float:
    """One number for all runs `[n]` of all tasks.

    `mean` is that of the tasks' means, `median` the median of the tasks' means, `iqm` the mean of the middle half of
    all scores, whatever their task.
    """
    return float(_aggregate_redraws([task[None, :] for task in scores], how)[0])


def estimate(
    scores: Sequence[Floats], how: Aggregate, drawn: Sequence[Indices], confidence: float = 0.95
) -> Estimate:
    """The aggregate with its percentile interval over the redraws that `draws` made."""
    redrawn = _aggregate_redraws(
        [task[index] for task, index in zip(scores, drawn, strict=True)], how
    )
    low, high = _interval(redrawn, confidence)
    return Estimate(aggregate(scores, how), float(low), float(high))


def band(curves: Floats, how: Center, drawn: Indices, confidence: float = 0.95) -> Band:
    """The aggregate of each point of the curves `[n, T]` of one task, with its pointwise percentile interval.

    Where a curve has no number there is none.
    """
    counts = _counts(drawn, len(curves))
    if how == "mean":
        redrawn = counts @ curves / len(curves)
        value = curves.mean(axis=0)
    else:
        cut = _cut(len(curves))
        redrawn = _trimmed_means(curves, counts, cut)
        value = np.sort(curves, axis=0)[cut : len(curves) - cut].mean(axis=0)
    gone = np.isnan(curves).any(axis=0)  # which a sort would take for the largest, and leave out
    found = [np.where(gone, np.nan, each) for each in (value, *_interval(redrawn, confidence))]
    return Band(*found)


def probability_of_improvement(
    better: Sequence[Floats],
    worse: Sequence[Floats],
    drawn: tuple[Sequence[Indices], Sequence[Indices]],
    confidence: float = 0.95,
) -> Estimate:
    """Estimate how likely a run of `better` scores above one of `worse` on a task, averaged over tasks; a tie is half.

    That is the Mann-Whitney U statistic over the number of pairs; both sides are redrawn independently.
    """
    values = []
    redrawn = []
    for ours, theirs, our_index, their_index in zip(better, worse, *drawn, strict=True):
        wins = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
        pairs = len(ours) * len(theirs)
        values.append(wins.mean())
        counts = _counts(our_index, len(ours)), _counts(their_index, len(theirs))
        redrawn.append(((counts[0] @ wins) * counts[1]).sum(axis=1) / pairs)
    low, high = _interval(np.mean(redrawn, axis=0), confidence)
    return Estimate(float(np.mean(values)), float(low), float(high))


def _aggregate_redraws(scores: Sequence[Floats], how: Aggregate) -> Floats:
    """The aggregate of each redraw; scores are `[reps, n]` per task."""
    if how == "iqm":
        ordered = np.sort(np.concatenate(scores, axis=1), axis=1)
        cut = _cut(ordered.shape[1])
        middle: Floats = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
        return middle
    means = np.stack([task.mean(axis=1) for task in scores])
    found: Floats = means.mean(axis=0) if how == "mean" else np.median(means, axis=0)
    return found


def _cut(count: int) -> int:
    """Return how many scores are left out at either end."""
    return int(TRIM * count)


def _counts(drawn: Indices, size: int) -> Floats:
    """Return how often each redraw takes each run, `[reps, size]`."""
    reps = len(drawn)
    places = (drawn + size * np.arange(reps)[:, None]).ravel()
    return np.bincount(places, minlength=reps * size).reshape(reps, size).astype(np.float64)


def _trimmed_means(curves: Floats, counts: Floats, cut: int) -> Floats:
    """Return the trimmed mean of every redraw at every point, `[reps, T]`, without sorting each redraw.

    In the order of their values, the runs of a redraw fill positions 0 to n; how many of the copies of the first i runs
    are between positions `cut` and `n - cut` is F_i, from the running sum of the counts. Run i contributes
    F_i - F_(i-1), so that the sum over runs is, by parts, F_n v_n - F_0 v_1 - sum F_i (v_(i+1) - v_i).
    """
    size = len(curves)
    order = np.argsort(curves, axis=0)
    by_run = np.ascontiguousarray(counts.T)
    found = np.empty((len(counts), curves.shape[1]))
    for point, by_value in enumerate(order.T):
        filled = by_run[by_value[:-1]]
        values = curves[by_value, point]
        np.cumsum(filled, axis=0, out=filled)
        np.clip(filled, cut, size - cut, out=filled)
        found[:, point] = (size - cut) * values[-1] - cut * values[0] - np.diff(values) @ filled
    return found / (size - 2 * cut)


def _interval(redrawn: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The middle `confidence` of the redraws, along their first axis."""
    tail = 50 * (1 - confidence)
    low, high = np.percentile(redrawn, [tail, 100 - tail], axis=0)
    return low, high
