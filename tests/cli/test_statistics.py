"""Aggregates and intervals match rliable and a plain reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlplug_cli.compare.statistics import (
    Aggregate,
    Center,
    LargeDraws,
    aggregate,
    band,
    draws,
    estimate,
    probability_of_improvement,
)
from tests.reference import statistics as reference
from tests.tables import for_each

#: Results of rliable 1.2.0 with arch 7.2: scores, the seed of its resampling, its numbers. Scores are [runs, tasks].
RLIABLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "rliable.json").read_bytes())
X, Y, CURVES = (np.array(RLIABLE[name]) for name in ("x", "y", "curves"))
REFERENCES: dict[Aggregate, Callable[..., float]] = {
    "mean": reference.mean,
    "iqm": reference.iqm,
    "median": reference.median,
}


def resample(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    """Return the samples that rliable drew for each array, `[reps, *shape]`."""
    random = np.random.RandomState(RLIABLE["seed"])
    samples = [[random.choice(shape[0], shape) for shape in shapes] for _ in range(RLIABLE["reps"])]
    return [np.stack(sample) for sample in zip(*samples, strict=True)]


@pytest.mark.parametrize("how", ["mean", "iqm", "median"])
def test_estimates_match_rliable(how: Aggregate) -> None:
    (indices,) = resample(X.shape)
    result = estimate(list(X.T), how, [indices[:, :, task] for task in range(3)])
    expected = [*RLIABLE[how]["value"], *np.ravel(RLIABLE[how]["interval"])]
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_probabilities_of_improvement_match_rliable() -> None:
    ours, theirs = resample(X.shape, Y.shape)
    drawn = tuple([side[:, :, task] for task in range(3)] for side in (ours, theirs))
    result = probability_of_improvement(list(X.T), list(Y.T), (drawn[0], drawn[1]))
    expected = [*RLIABLE["probability"]["value"], *np.ravel(RLIABLE["probability"]["interval"])]
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@for_each("how", ["mean", "iqm"])
@for_each("point", range(4))
def test_bands_match_rliable(how: Center, point: int) -> None:
    """rliable resamples each point of a curve separately, so each is compared with its own samples."""
    (indices,) = resample((9, 1, 4))
    result = band(CURVES[:, point : point + 1], how, indices[:, :, 0, point])
    known = RLIABLE[f"curve_{how}"]
    expected = [known["value"][point], known["interval"][0][point], known["interval"][1][point]]
    np.testing.assert_allclose([values[0] for values in result], expected, rtol=1e-12)


#: Few different values, so there are ties.
SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=6)
TASKS = st.lists(SCORES, min_size=1, max_size=3)


@given(tasks=TASKS, how=st.sampled_from(["mean", "iqm", "median"]), seed=st.integers(0, 9))
def test_estimates_match_the_reference(tasks: list[list[float]], how: Aggregate, seed: int) -> None:
    arrays = [np.array(task) for task in tasks]
    drawn = draws([len(task) for task in tasks], 20, np.random.default_rng(seed))
    result = estimate(arrays, how, drawn)
    expected = (REFERENCES[how](tasks), *reference.interval(REFERENCES[how], arrays, drawn))
    np.testing.assert_allclose(result, expected, atol=1e-12)
    assert aggregate(arrays, how) == result.value


@given(
    curves=st.integers(1, 7).flatmap(
        lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=1, max_size=3)
    ),
    how=st.sampled_from(["mean", "iqm"]),
)
def test_points_of_a_band_are_estimates(curves: list[list[int]], how: Center) -> None:
    points = np.array(curves, dtype=np.float64)  # [T, n]
    drawn = draws([points.shape[1]], 30, np.random.default_rng(0))
    result = band(points.T, how, drawn[0])
    for number, point in enumerate(points):
        expected = estimate([point], how, drawn)
        np.testing.assert_allclose([values[number] for values in result], expected, atol=1e-12)


@given(ours=TASKS, seed=st.integers(0, 9), shift=st.integers(-2, 2))
def test_probabilities_of_improvement_match_the_reference(ours: list[list[float]], seed: int, shift: int) -> None:
    theirs = [[score + shift for score in task[: len(task) // 2 + 1]] for task in ours]
    generator = np.random.default_rng(seed)
    drawn = tuple(draws([len(task) for task in side], 15, generator) for side in (ours, theirs))
    both = [[np.array(task) for task in side] for side in (ours, theirs)]
    result = probability_of_improvement(both[0], both[1], (drawn[0], drawn[1]))
    known = [
        reference.improvement(
            [task[i[rep]].tolist() for task, i in zip(both[0], drawn[0], strict=True)],
            [task[i[rep]].tolist() for task, i in zip(both[1], drawn[1], strict=True)],
        )
        for rep in range(15)
    ]
    np.testing.assert_allclose(
        result, (reference.improvement(ours, theirs), *np.percentile(known, [2.5, 97.5])), atol=1e-12
    )


@pytest.mark.parametrize("how", ["mean", "iqm"])
def test_band_is_nan_if_a_curve_is_nan(how: Center) -> None:
    curves = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, np.nan]])
    (drawn,) = draws([4], 50, np.random.default_rng(0))
    result = band(curves, how, drawn)
    assert result.value[0] == 2.5
    assert np.isfinite([each[0] for each in result]).all()
    assert np.isnan([each[1] for each in result]).all()


@pytest.mark.parametrize("how", ["mean", "iqm"])
def test_samples_of_many_runs_are_drawn_in_parts(how: Center, monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of ten thousand runs take gigabytes; parts give the same numbers."""
    random = np.random.default_rng(3)
    tasks = [random.normal(size=size).round(1) for size in (40, 7)]
    curves = random.normal(size=(40, 3))

    def numbers() -> list[Any]:
        generator = np.random.default_rng(0)
        mine = draws([40, 7], 60, generator)
        theirs = draws([40, 7], 60, generator)
        improvement = probability_of_improvement(tasks, [tasks[0][::-1] + 0.1, tasks[1]], (mine, theirs))
        return [*estimate(tasks, how, mine), *improvement, *np.ravel(band(curves, how, mine[0]))]

    expected = numbers()
    monkeypatch.setattr("rlplug_cli.compare.statistics.PART", 500)
    assert isinstance(draws([40], 60, random)[0], LargeDraws)
    np.testing.assert_allclose(numbers(), expected, rtol=1e-12)
