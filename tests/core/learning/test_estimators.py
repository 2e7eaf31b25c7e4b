"""GAE, λ-returns and n-step returns of rollouts against the definitions for one episode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning import estimators
from rlplug_core.learning.estimators import explained_variance, gae
from tests.core.stories import GARBAGE, Story, absent_between, critic, stories, value
from tests.reference import returns
from tests.reference.returns import Moment
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

GAMMAS = st.floats(0, 1)


def check(story: Story, steps: int, gamma: float, lam: float) -> None:
    """Compare every rollout of a story with the reference."""
    buffer = RolloutBuffer(steps)
    start = 0
    for step in story.steps():
        buffer.add(step)
        for rollout in buffer.batches(Clock(1)):
            window = [row[start : start + steps] for row in story.moments]
            compare(rollout, window, gamma, lam)
            start += steps
    assert start == len(story) // steps * steps


def compare(rollout: Rollout, window: list[list[Moment]], gamma: float, lam: float) -> None:
    advantage, target = gae(rollout, *rollout.values(critic), gamma, lam)
    assert advantage.dtype == target.dtype == np.float32
    for row, moments in enumerate(window):
        expected = returns.gae(moments, value, gamma, lam)
        n_step = returns.n_step(moments, value, gamma)
        lambda_return = returns.lambda_return(moments, value, gamma, lam)
        for time, moment in enumerate(moments):
            if time not in expected:
                assert advantage[time, row] == 0
                continue
            assert advantage[time, row] == pytest.approx(expected[time], rel=1e-4, abs=1e-4)
            assert target[time, row] == pytest.approx(expected[time] + value(moment.obs), rel=1e-4, abs=1e-4)
            assert target[time, row] == pytest.approx(lambda_return[time], rel=1e-4, abs=1e-4)
            if lam == 1:
                assert target[time, row] == pytest.approx(n_step[time], rel=1e-4, abs=1e-4)


@settings(max_examples=150, deadline=None)
@given(stories(st.integers(1, 15)), st.integers(1, 6), GAMMAS, st.one_of(st.just(1.0), st.just(0.0), GAMMAS))
def test_gae_equals_the_definition(story: Story, steps: int, gamma: float, lam: float) -> None:
    check(story, steps, gamma, lam)


@for_each("end", ["terminated", "truncated", "neither"])
@for_each("time", [0, 1, 2])
def test_gae_handles_an_end_at_each_step(end: str, time: int) -> None:
    """Also at the last step, which stores its successor differently."""
    numbers = iter(range(100))
    moments = []
    now = next(numbers)
    for t in range(3):
        after = next(numbers)
        moments.append(
            Moment(now, 1.0, after, end == "terminated" and t == time, end == "truncated" and t == time, True)
        )
        now = next(numbers) if end != "neither" and t == time else after
    check(Story([moments]), 3, 0.9, 0.8)


def test_truncation_bootstraps_the_value() -> None:
    """Endless rewards of 1 have the value 1 / (1 - gamma). If V is correct, all advantages are 0."""
    gamma = 0.9
    ends = (False, True, False, False, True)
    buffer = RolloutBuffer(len(ends))
    for end in ends:
        moment = Moment(1, 1.0, 1, False, end, True)
        buffer.add(next(Story([[moment]]).steps()))
    (rollout,) = buffer.batches(Clock(1))
    endless = lambda obs: np.full(len(obs), 1 / (1 - gamma), dtype=np.float32)  # noqa: E731
    advantage, target = gae(rollout, *rollout.values(endless), gamma, 0.95)
    np.testing.assert_allclose(advantage, 0, atol=1e-5)
    np.testing.assert_allclose(target, 10, rtol=1e-5)


@for_each("garbage", GARBAGE)
@for_each("cut", [False, True])
def test_gae_ignores_rows_of_weight_0(garbage: Any, cut: bool) -> None:
    outcomes = []
    for story in (absent_between(cut), absent_between(cut, *garbage)):
        buffer = RolloutBuffer(4)
        for step in story.steps():
            buffer.add(step)
        (rollout,) = buffer.batches(Clock(1))
        outcomes.append(gae(rollout, *rollout.values(critic), 0.99, 0.95)[0])
    np.testing.assert_array_equal(*outcomes)


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_few_environments_give_the_same_bits(num_envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop over lists, which few environments use, equals the loop over arrays."""
    generator = np.random.default_rng(num_envs)
    delta = generator.standard_normal((50, num_envs), dtype=np.float32)
    decay = 0.95 * (generator.random((50, num_envs)) < 0.9)
    lists = estimators._sum_discounted(delta, decay, np.zeros_like(delta))
    monkeypatch.setattr(estimators, "FEW", 0)
    assert np.array_equal(lists, estimators._sum_discounted(delta, decay, np.zeros_like(delta)))


def test_explained_variance_equals_the_definition() -> None:
    """1 - Var(target - value) / Var(target) over valid rows, as in Stable-Baselines3."""
    value = np.array([[1.0, 2.0], [4.0, 7.0], [5.0, 99.0]], np.float32)
    target = np.array([[2.0, 2.5], [3.0, 8.0], [5.5, -99.0]], np.float32)
    weight = np.array([[1, 1], [1, 1], [1, 0]], np.float32)
    valid = weight > 0
    expected = 1 - np.var((target - value)[valid]) / np.var(target[valid])
    rollout = SimpleNamespace(whole=False, weight=weight)
    assert explained_variance(rollout, target - value, target) == pytest.approx(expected)  # type: ignore[arg-type]
    rollout = SimpleNamespace(whole=True, weight=weight)
    expected = 1 - np.var(target - value) / np.var(target)
    assert explained_variance(rollout, target - value, target) == pytest.approx(expected)  # type: ignore[arg-type]
    assert explained_variance(rollout, value, np.full_like(value, 3.0)) == 0.0  # type: ignore[arg-type]
