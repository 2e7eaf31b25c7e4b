"""The rule of population based training: which members copy others, and how options change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlplug_core.config.options import Range
from rlplug_core.loop.population import Exchange, Member, PopulationRule, Truncation, TruncationConfig, sample
from rlplug_core.plugins.spec import PartSpec

RATE = Range("log", (1e-5, 1e-2))
SPACE = {"rate": RATE}


def members(*scores: float, rate: float = 1e-3) -> list[Member]:
    return [Member(number, (score,), {"rate": rate * (number + 1)}) for number, score in enumerate(scores)]


def exchange(scores: tuple[float, ...], seed: int = 0, **options: float) -> dict[int, Exchange]:
    rule = Truncation(TruncationConfig(**options))
    return rule.exchange(members(*scores), SPACE, np.random.default_rng(seed))


def test_worst_members_copy_the_best_and_change_options() -> None:
    found = exchange((5.0, 1.0, 9.0, 2.0, 8.0), share=0.4)
    assert sorted(found) == [1, 3]
    for change in found.values():
        assert change.source in (2, 4)
        ratio = change.options["rate"] / (1e-3 * (change.source + 1))  # type: ignore[operator]
        assert min(abs(ratio - 1.2), abs(ratio - 1 / 1.2)) < 1e-9
    sources = {
        change.source for seed in range(20) for change in exchange((5.0, 1.0, 9.0, 2.0, 8.0), seed, share=0.4).values()
    }
    assert sources == {2, 4}


def test_small_populations_exchange_unless_equal() -> None:
    assert {number: change.source for number, change in exchange((1.0, 2.0, 3.0)).items()} == {0: 2}
    assert exchange((2.0, 2.0, 2.0)) == {}
    assert exchange((1.0,)) == {}
    assert {number: change.source for number, change in exchange((5.0, math.nan, 1.0), share=0.9).items()} == {1: 0}


@pytest.mark.parametrize(
    ("range", "value", "expected"),
    [
        (Range("uniform", (0.0, 1.0)), 0.9, {0.75, 1.0}),
        (Range("integer", (1, 100)), 10, {8, 12}),
        (Range("log", (16, 20)), 16, {19}),
        (Range("integer", (0, 9)), 2, {1, 3}),
        (Range("uniform", (0.0, 1.0)), 1.0, {round(1 / 1.2, 9)}),
        (Range("choice", ("a", "b", "c")), "b", {"a", "c"}),
        (Range("choice", ("a", "b", "c")), "c", {"b"}),
        (Range("choice", ("a",)), "a", {"a"}),
        (Range("choice", ((64, 64), (32,))), [32], {(64, 64)}),
    ],
)
def test_perturbed_values_stay_in_their_range_and_type(range: Range, value: object, expected: set[object]) -> None:
    rule = Truncation(TruncationConfig())
    new: set[object] = set()
    for seed in (0, 1, 2, 3, 4, 5, 6, 7):
        both = [Member(0, (0.0,), {"x": value}), Member(1, (1.0,), {"x": value})]
        change = rule.exchange(both, {"x": range}, np.random.default_rng(seed))[0].options["x"]
        change = tuple(change) if isinstance(change, list) else change
        new.add(round(change, 9) if isinstance(change, float) else change)
    assert new == expected


@pytest.mark.parametrize("range", [RATE, Range("uniform", (0.5, 0.6)), Range("integer", (2, 4)), Range("log", (2, 4))])
def test_samples_cover_their_range(range: Range) -> None:
    low, high = range.values
    generator = np.random.default_rng(0)
    values = [sample(range, generator) for _ in [None] * 200]
    assert all(low <= value <= high for value in values)  # type: ignore[operator]
    if isinstance(low, int):
        assert set(values) == {2, 3, 4}
        assert all(type(value) is int for value in values)
    if range is RATE:
        assert 60 < sum(value < 3e-4 for value in values) < 140  # type: ignore[operator]  # log-uniform


def test_resampled_values_do_not_depend_on_the_old_ones() -> None:
    new = [exchange((0.0, 1.0), seed, resample=1.0)[0].options["rate"] for seed in range(20)]
    assert len(set(new)) == 20
    assert max(new) > 4e-3  # type: ignore[type-var, operator]


def surrogate_ascent(rule: Truncation | None, seed: int) -> float:
    """Return the best Q of two members after 200 steps, with exchanges after every fourth step if there is a rule.

    Q(x, y) = 1.2 - x² - y². A member ascends 1.2 - h0 x² - h1 y², and its options are h0 and h1.
    """
    space = {"h0": Range("uniform", (0.0, 1.0)), "h1": Range("uniform", (0.0, 1.0))}
    position = np.full((2, 2), 0.9)
    options: list[dict[str, object]] = [{"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 0.9}]
    generator = np.random.default_rng(seed)
    for step in range(1, 201):
        weights = np.array([[member["h0"], member["h1"]] for member in options], dtype=float)
        position -= 0.02 * weights * position
        if rule is not None and step % 4 == 0:
            q = 1.2 - (position**2).sum(1)
            found = rule.exchange(
                [Member(number, (float(q[number]),), options[number]) for number in (0, 1)], space, generator
            )
            for number, change in found.items():
                position[number] = position[change.source]
                options[number] = dict(change.options)
    return float((1.2 - (position**2).sum(1)).max())


def test_population_finds_maximum_that_single_members_miss() -> None:
    """The toy of Jaderberg et al. (2017, figure 2): 0.4 with fixed options (a grid search), 1.2 with exchanges."""
    assert surrogate_ascent(None, 0) == pytest.approx(0.39, abs=0.01)
    found = [surrogate_ascent(Truncation(TruncationConfig()), seed) for seed in range(10)]
    assert min(found) > 1.15


def test_rule_is_built_from_its_name_and_options() -> None:
    rule = PartSpec.parse("rule", "truncation:share=0.5,factor=2").build()
    assert isinstance(rule, PopulationRule)
    assert isinstance(rule, Truncation)
    assert rule.config == TruncationConfig(share=0.5, factor=2.0)
