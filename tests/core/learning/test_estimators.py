"""GAE, λ-returns and n-step returns against the definitions, one episode at a time, through the real buffer."""

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
    """Every rollout of the story, held against the reference."""
    buffer, seen = RolloutBuffer(steps), 0
    for step in story.steps():
        buffer.add(step)
        for rollout in buffer.batches(Clock(1)):
            window = [row[seen : seen + steps] for row in story.moments]
            compare(rollout, window, gamma, lam)
            seen += steps
    assert seen == len(story) // steps * steps


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
def test_gae_is_the_definition(story: Story, steps: int, gamma: float, lam: float) -> None:
    check(story, steps, gamma, lam)


@for_each("end", ["terminated", "truncated", "neither"])
@for_each("time", [0, 1, 2])
def test_an_end_at_every_place_of_the_rollout(end: str, time: int) -> None:
    """The last step included, whose successor is kept in another place."""
    numbers = iter(range(100))
    moments, now = [], next(numbers)
    for t in range(3):
        after = next(numbers)
        moments.append(
            Moment(now, 1.0, after, end == "terminated" and t == time, end == "truncated" and t == time, True)
        )
        now = next(numbers) if end != "neither" and t == time else after
    check(Story([moments]), 3, 0.9, 0.8)


def test_a_truncated_chain_has_the_value_of_an_endless_one() -> None:
    """A reward of 1 for ever is worth 1 / (1 - gamma), cut or not, if V is right: the advantage is 0 everywhere."""
    gamma, ends = 0.9, (False, True, False, False, True)
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
def test_rows_that_hold_no_transition_may_hold_anything(garbage: Any, cut: bool) -> None:
    """What an absent row says of observations, rewards, ends and successors reaches no number."""
    outcomes = []
    for story in (absent_between(cut), absent_between(cut, *garbage)):
        buffer = RolloutBuffer(4)
        for step in story.steps():
            buffer.add(step)
        (rollout,) = buffer.batches(Clock(1))
        outcomes.append(gae(rollout, *rollout.values(critic), 0.99, 0.95)[0])
    np.testing.assert_array_equal(*outcomes)


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_few_environments_have_the_bits_of_many(num_envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go through lists; which way is taken must not be seen in a run."""
    generator = np.random.default_rng(num_envs)
    delta = generator.standard_normal((50, num_envs), dtype=np.float32)
    decay = 0.95 * (generator.random((50, num_envs)) < 0.9)
    lists = estimators._backwards(delta, decay, np.zeros_like(delta))
    monkeypatch.setattr(estimators, "FEW", 0)
    assert np.array_equal(lists, estimators._backwards(delta, decay, np.zeros_like(delta)))


@pytest.mark.usefixtures("loops")
def test_explained_variance_is_the_definition() -> None:
    """1 - Var(target - value) / Var(target) over the rows that count, as in Stable-Baselines3."""
    value = np.array([[1.0, 2.0], [4.0, 7.0], [5.0, 99.0]], np.float32)
    target = np.array([[2.0, 2.5], [3.0, 8.0], [5.5, -99.0]], np.float32)
    weight = np.array([[1, 1], [1, 1], [1, 0]], np.float32)
    counted = weight > 0
    expected = 1 - np.var((target - value)[counted]) / np.var(target[counted])
    rollout = SimpleNamespace(whole=False, weight=weight)
    assert explained_variance(rollout, target - value, target) == pytest.approx(expected)  # type: ignore[arg-type]
    rollout = SimpleNamespace(whole=True, weight=weight)
    expected = 1 - np.var(target - value) / np.var(target)
    assert explained_variance(rollout, target - value, target) == pytest.approx(expected)  # type: ignore[arg-type]
    assert explained_variance(rollout, value, np.full_like(value, 3.0)) == 0.0  # type: ignore[arg-type]
