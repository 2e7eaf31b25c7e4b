"""V-trace and Retrace of rollouts against the definitions for one episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning.corrections import retrace, vtrace
from rlplug_core.learning.estimators import gae, standardize
from rlplug_core.types import Array, Step
from tests.core.stories import GARBAGE, Story, absent_between, critic, stories, value
from tests.reference import returns
from tests.reference.returns import Moment
from tests.tables import for_each

SHARES = st.floats(0, 1)
CLIPS = st.floats(0.1, 3)


def q_taken(number: float | Array) -> Array:
    """Return Q of the action taken at an observation."""
    return np.cos(np.asarray(number, dtype=np.float64) * 7.31) * 2


def ratio(number: float | Array) -> Array:
    """Return the importance ratio of the action, from 0.1 to 7."""
    return np.exp(np.sin(np.asarray(number, dtype=np.float64) * 3.7) * 2)


def windows(story: Story, steps: int) -> Iterator[tuple[Rollout, list[list[Moment]]]]:
    """Yield the rollouts of a story, each with the moments of its rows."""
    buffer = RolloutBuffer(steps)
    seen = 0
    for step in story.steps():
        buffer.add(step)
        for rollout in buffer.batches(Clock(1)):
            yield rollout, [row[seen : seen + steps] for row in story.moments]
            seen += steps


def evaluate(function: Callable[[Array], Array], rollout: Rollout) -> Array:
    """Apply a function to each observation of a rollout: [T, N]."""
    values: Array = function(rollout.obs[:-1, :, 0]).astype(np.float32)
    return values


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 15)), st.integers(1, 6), SHARES, SHARES, CLIPS, CLIPS)
def test_vtrace_equals_the_definition(
    story: Story, steps: int, gamma: float, lam: float, clip_rho: float, clip_c: float
) -> None:
    for rollout, rows in windows(story, steps):
        advantage, target = vtrace(
            rollout, *rollout.values(critic), evaluate(ratio, rollout), gamma, lam, clip_rho, clip_c
        )
        assert advantage.dtype == target.dtype == np.float32
        for row, moments in enumerate(rows):
            wanted = returns.vtrace(moments, value, ratio, gamma, lam, clip_rho, clip_c)
            assert np.flatnonzero(~rollout.weight[:, row].astype(bool)).tolist() == [
                time for time in range(steps) if time not in wanted[0]
            ]
            for time in range(steps):
                assert advantage[time, row] == pytest.approx(wanted[0].get(time, 0.0), rel=1e-3, abs=1e-3)
                if time in wanted[1]:
                    assert target[time, row] == pytest.approx(wanted[1][time], rel=1e-3, abs=1e-3)


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 15)), st.integers(1, 6), SHARES, SHARES)
def test_retrace_equals_the_definition(story: Story, steps: int, gamma: float, lam: float) -> None:
    for rollout, rows in windows(story, steps):
        q, ratios = evaluate(q_taken, rollout), evaluate(ratio, rollout)
        target = retrace(rollout, *rollout.values(critic), q, ratios, gamma, lam)
        assert target.dtype == np.float32
        for row, moments in enumerate(rows):
            wanted = returns.retrace(moments, value, q_taken, ratio, gamma, lam)
            for time, number in wanted.items():
                assert target[time, row] == pytest.approx(number, rel=1e-3, abs=1e-3)


@settings(max_examples=30, deadline=None)
@given(stories(st.integers(1, 12)), st.integers(1, 6), SHARES)
def test_on_policy_vtrace_equals_n_step_returns(story: Story, steps: int, gamma: float) -> None:
    """With ratios of 1 the targets are those of GAE with lambda 1 (section 4.1)."""
    for rollout, _ in windows(story, steps):
        ones = np.ones_like(rollout.reward)
        counts = rollout.weight > 0
        values = rollout.values(critic)
        advantage, target = vtrace(rollout, *values, ones, gamma)
        expected, expected_target = gae(rollout, *values, gamma, 1.0)
        np.testing.assert_allclose(advantage, expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(target[counts], expected_target[counts], rtol=1e-3, atol=1e-3)


def bandit(center: bool, offset: float) -> float:
    """Return the policy gradient at the first logit of an off-policy bandit; its critic has an error of `offset`."""
    behavior = np.array([0.7, 0.3])
    policy = np.array([0.3, 0.7])
    gain = np.array([1.0, -3 / 7])
    action = np.repeat([0, 1], [7, 3])[None]  # as often as the behavior policy chooses them
    step = Step(
        np.zeros((10, 1), np.float32),
        action[0],
        gain[action[0]].astype(np.float32),
        np.zeros((10, 1), np.float32),
        terminated=np.ones(10, bool),
        truncated=np.zeros(10, bool),
        is_first=np.ones(10, bool),
        valid=np.ones(10, bool),
        ended=True,
        extras={},
        recurrent_state=None,
    )
    buffer = RolloutBuffer(1)
    buffer.add(step)
    (rollout,) = buffer.batches(Clock(1))
    value = np.full((1, 10), -offset, np.float32)
    ratio = (policy / behavior)[action]
    advantage, _ = vtrace(rollout, value, value, ratio, 0.9, center=center)
    scaled = standardize(torch.from_numpy(advantage[0]), torch.ones(10)).numpy() if center else advantage[0]
    return float((scaled * np.array([1 - policy[0], -policy[0]])[action[0]]).mean())


def test_centered_gradient_does_not_depend_on_the_critic() -> None:
    """Without the correction, an error of -2 reverses the direction of the gradient."""
    found = [bandit(center=True, offset=offset) for offset in (0.0, 2.0, -2.0)]
    assert min(found) > 0.1
    np.testing.assert_allclose(found, found[0], rtol=1e-4)
    assert bandit(center=False, offset=-2.0) < 0.02 < bandit(center=False, offset=0.0)


@settings(max_examples=30, deadline=None)
@given(stories(st.integers(1, 15)), st.integers(1, 6), SHARES, SHARES)
def test_centering_subtracts_a_constant_times_the_weights(story: Story, steps: int, gamma: float, lam: float) -> None:
    for rollout, _ in windows(story, steps):
        given_ = (rollout, *rollout.values(critic), evaluate(ratio, rollout), gamma, lam)
        plain, target = vtrace(*given_)
        centered, same = vtrace(*given_, center=True)
        np.testing.assert_array_equal(target, same)
        assert centered.sum() == pytest.approx(0, abs=1e-3)
        rho = np.minimum(evaluate(ratio, rollout), 1) * (rollout.weight > 0)
        baseline = plain.sum() / max(rho.sum(), 1e-9)
        np.testing.assert_allclose(centered, plain - rho * baseline, rtol=1e-3, atol=1e-3)


@for_each("garbage", GARBAGE)
@for_each("cut", [False, True])
def test_targets_ignore_rows_of_weight_0(garbage: Any, cut: bool) -> None:
    outcomes = []
    for story in (absent_between(cut), absent_between(cut, *garbage)):
        ((rollout, _),) = windows(story, 4)
        ones = np.ones_like(rollout.reward)
        counts = rollout.weight > 0
        outcomes.append(
            [
                *(part[counts] for part in vtrace(rollout, *rollout.values(critic), ones, 0.9)),
                retrace(rollout, *rollout.values(critic), ones, ones, 0.9)[counts],
            ]
        )
    for expected, found in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(expected, found)
