"""Prioritized replay against the closed form of Schaul et al. (2016), with the stories of uniform replay."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.prioritized import PrioritizedReplay, Priority
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant, linear
from rlplug_core.errors import RlplugError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result
from tests.core.buffers.test_replay import check
from tests.core.fakes import assert_same
from tests.core.stories import Story, compare_after_load, dictionary_step, stories
from tests.reference import replay

GAMMA = 0.9
CLOCK = Clock(1)
HALF = Priority(beta=constant(0.5))


def buffer_for(num_envs: int, slots: int, n: int = 1, size: int = 16, priority: Priority = HALF) -> PrioritizedReplay:
    pace = ReplaySchedule(size, 1, 1, (n + 1) * num_envs)
    return PrioritizedReplay(slots * num_envs, pace, n, GAMMA, Seeds(7), priority=priority)


def surprise(batch: Transitions) -> Result:
    """Give each transition its own priority."""
    return Result({}, 5 * torch.sin(batch.obs[:, 0]).abs())


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 30)), st.integers(1, 4), st.integers(0, 6))
def test_batches_equal_the_story(story: Story, n: int, extra: int) -> None:
    """The mass of a transition is the reported one, or the largest so far, which is 1 at first."""
    slots = n + 1 + extra
    buffer = buffer_for(story.num_envs, slots, n)
    masses: dict[int, float] = {}
    largest = 1.0
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        known = {}
        for row in story.moments:
            known |= replay.memory(row[: time + 1], slots, n, GAMMA)
            if time + 1 >= n:
                masses[row[time + 1 - n].obs] = largest
        for batch in buffer.batches(CLOCK):
            check(batch, known)
            drawn = np.array([masses[int(obs)] for obs in batch.obs[:, 0].tolist()])
            np.testing.assert_allclose(batch.weight, (drawn / drawn.min()) ** -0.5, rtol=1e-5)
            result = surprise(batch)
            buffer.feedback(batch, result)
            assert result.priority is not None
            reported = (result.priority.double().numpy() + 1e-6) ** 0.6
            masses |= dict(zip(map(int, batch.obs[:, 0].tolist()), reported.tolist(), strict=True))
            largest = max(largest, *reported.tolist())


@settings(max_examples=30, deadline=None)
@given(stories(st.integers(3, 20)), st.integers(1, 3), st.integers(0, 5))
def test_only_complete_transitions_have_mass(story: Story, n: int, extra: int) -> None:
    """Unfinished windows, invalid rows and overwritten transitions have none."""
    slots = n + 1 + extra
    buffer = buffer_for(story.num_envs, slots, n)
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        expected = np.zeros((slots, story.num_envs))
        for moment in range(max(0, time + 1 - slots), time + 2 - n):
            expected[moment % slots] = [row[moment].valid for row in story.moments]
        np.testing.assert_array_equal(buffer.tree.mass.reshape(slots, story.num_envs), expected)


def test_draws_follow_the_closed_form() -> None:
    """P(i) = p_i^alpha / sum p^alpha, also after the ring has wrapped around."""
    buffer = buffer_for(2, 8, size=16, priority=Priority(0.7, constant(1.0), 0.01))
    for time in range(11):
        buffer.add(dictionary_step(time))
    numbers = np.arange(6, 22)
    priority = np.linspace(0, 3, 16)
    batch = buffer.gather(numbers)
    buffer.feedback(batch, Result({}, torch.from_numpy(priority)))
    probabilities = (priority + 0.01) ** 0.7
    probabilities /= probabilities.sum()
    drawn = [buffer.draw(16, CLOCK) for _ in range(2000)]
    counts = np.bincount(np.concatenate([batch.index for batch in drawn]), minlength=22)
    assert (counts[:6] == 0).all()
    expected = 32_000 * probabilities
    assert (np.abs(counts[6:] - expected) < 5 * np.sqrt(expected) + 1).all()
    for batch in drawn[:50]:
        weight = (16 * probabilities[batch.index.numpy() - 6]) ** -1.0
        np.testing.assert_allclose(batch.weight, weight / weight.max(), rtol=1e-5)


def test_draws_are_stratified() -> None:
    """Each equal share of the mass gives one draw, so as many draws as equal transitions draw each once."""
    buffer = buffer_for(2, 32, size=64)
    for time in range(32):
        buffer.add(dictionary_step(time))
    np.testing.assert_array_equal(buffer.draw(64, CLOCK).index, np.arange(64))


def test_mean_does_not_normalize_weights() -> None:
    buffer = buffer_for(2, 10, size=8)
    for time in range(10):
        buffer.add(dictionary_step(time))
    buffer.feedback(buffer.gather(np.arange(10)), Result({}, torch.linspace(0, 5, 10)))
    batch = buffer.draw(8, CLOCK)
    assert 0 < batch.weight.min() < batch.weight.max() == 1
    value = torch.linspace(1, 2, 8)
    assert float(batch.mean(value)) == pytest.approx(float((batch.weight * value).sum() / 8))


def test_beta_follows_the_clock() -> None:
    buffer = buffer_for(2, 10, size=8, priority=Priority(beta=linear(0.0, 1.0)))
    for time in range(10):
        buffer.add(dictionary_step(time))
    buffer.feedback(buffer.gather(np.arange(20)), Result({}, torch.linspace(0.1, 5, 20)))
    assert buffer.draw(8, Clock(100)).weight.tolist() == [1.0] * 8
    batch = buffer.draw(8, Clock(100, steps=100))
    mass = buffer.tree.mass[batch.index.numpy()]
    np.testing.assert_allclose(batch.weight, mass.min() / mass, rtol=1e-5)


def test_new_transitions_get_the_largest_priority() -> None:
    """Algorithm 1 of Schaul et al. (2016, arXiv:1511.05952)."""
    buffer = buffer_for(2, 10, priority=Priority(alpha=1.0, epsilon=1e-12))
    buffer.add(dictionary_step(0))
    buffer.add(dictionary_step(1))
    assert max(buffer.tree.mass) == 1.0
    buffer.feedback(buffer.gather(np.array([0])), Result({}, torch.tensor([7.0])))
    buffer.add(dictionary_step(2))
    assert sorted(buffer.tree.mass)[-2:] == pytest.approx([7.0, 7.0])


def test_last_priority_of_a_transition_counts() -> None:
    buffer = buffer_for(2, 10)
    for time in range(4):
        buffer.add(dictionary_step(time))
    buffer.feedback(buffer.gather(np.array([3, 5, 3])), Result({}, torch.tensor([9.0, 1.0, 4.0])))
    np.testing.assert_allclose(buffer.tree.mass[[3, 5]], [4.000001**0.6, 1.000001**0.6])
    assert buffer.largest == pytest.approx(9.000001**0.6)  # of all priorities so far


def test_priorities_of_overwritten_transitions_are_ignored() -> None:
    """Feedback may arrive after the ring has overwritten transitions of the batch."""
    buffer = buffer_for(2, 4)
    for time in range(5):
        buffer.add(dictionary_step(time))
    batch = buffer.gather(np.array([2, 3, 4, 9]))  # times 1, 1, 2 and 4
    buffer.add(dictionary_step(5))
    buffer.feedback(batch, Result({}, torch.tensor([50.0, 60.0, 7.0, 8.0])))
    assert buffer.largest == pytest.approx(8.000001**0.6)
    np.testing.assert_allclose(
        buffer.tree.mass, [1, 8.000001**0.6, 1, 1, 7.000001**0.6, 1, 1, 1]
    )  # slots 0 to 3 hold times 4, 5, 2, 3


@pytest.mark.parametrize("priority", [None, torch.tensor([1.0, -1.0]), torch.tensor([1.0, float("nan")])])
def test_invalid_priorities_raise(priority: torch.Tensor | None) -> None:
    buffer = buffer_for(2, 4)
    buffer.add(dictionary_step(0))
    with pytest.raises(RlplugError, match="priorit"):
        buffer.feedback(buffer.gather(np.array([0, 1])), Result({}, priority))


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplay, SampledReplay])
@settings(max_examples=40, deadline=None)
@given(stories(st.integers(1, 20)), st.integers(1, 3), st.integers(0, 4), st.data())
def test_state_resumes_at_any_step(
    kind: type[ReplayBuffer], story: Story, n: int, extra: int, data: st.DataObject
) -> None:
    """A resumed buffer draws the same batches; its state is equal in the end."""
    move = data.draw(st.integers(0, len(story) - 1))
    rows = story.num_envs
    pace = ReplaySchedule(16, 1, 1, (n + 1) * rows)
    make = partial(kind, (n + 1 + extra) * rows, pace, n, GAMMA, Seeds(7))
    for *buffers, expected, batch in compare_after_load(story, move, make):
        assert_same(asdict(expected), asdict(batch))
        for buffer in buffers:
            buffer.feedback(batch, surprise(batch))
