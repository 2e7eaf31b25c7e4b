"""Prioritized replay with sampled eviction: probabilities of eviction, priorities and resume."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.buffers.prioritized import Priority
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result
from tests.core.buffers.test_prioritized import surprise
from tests.core.buffers.test_replay import GAMMA, check
from tests.core.stories import Story, dictionary_step, stories
from tests.reference import replay

CLOCK = Clock(1)
HALF = Priority(beta=constant(0.5))


def buffer_for(num_envs: int, slots: int, n: int = 1, size: int = 16, priority: Priority = HALF) -> SampledReplay:
    return SampledReplay(
        slots * num_envs, ReplaySchedule(size, 1, 1, (n + 1) * num_envs), n, GAMMA, Seeds(7), priority=priority
    )


def stored_numbers(buffer: SampledReplay) -> Array:
    return buffer.numbers[: buffer.fill_level] if buffer.finished else np.zeros(0, np.int64)


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 30)), st.integers(1, 4), st.integers(0, 6))
def test_only_full_buffers_evict_and_keep_new_transitions(story: Story, n: int, extra: int) -> None:
    """Transitions equal the story; their mass is the reported one, or the largest so far."""
    buffer = buffer_for(story.num_envs, n + 1 + extra, n)
    known: dict[int, replay.Transition] = {}
    masses: dict[int, float] = {}
    before: set[int] = set()
    largest = 1.0
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        new = {}
        start = time + 1 - n
        if start >= 0:
            for row in story.moments:
                transition = replay.window(row[: time + 1], start, n, GAMMA)
                if row[start].valid and transition is not None:
                    new[row[start].obs] = transition
        known |= new
        masses |= dict.fromkeys(new, largest)
        numbers = stored_numbers(buffer)
        now = check(buffer.gather(numbers), known) if len(numbers) else set()
        assert len(now) == len(numbers) == min(len(known), buffer.capacity)
        assert new.keys() <= now <= before | new.keys()
        before = now
        for batch in buffer.batches(CLOCK):
            drawn = np.array([masses[obs] for obs in map(int, batch.obs[:, 0].tolist())])
            assert check(batch, known) <= now
            np.testing.assert_allclose(batch.weight, (drawn / drawn.min()) ** -0.5, rtol=1e-5)
            result = surprise(batch)
            buffer.feedback(batch, result)
            assert result.priority is not None
            reported = ((result.priority.double().numpy() + 1e-6) ** 0.6).tolist()
            masses |= dict(zip(map(int, batch.obs[:, 0].tolist()), reported, strict=True))
            largest = max(largest, *reported)


def test_evictions_follow_the_closed_form() -> None:
    """Two evictions at a time against the probabilities of all pairs; new transitions get the evicted priorities."""
    priority = np.array([0.2, 0.5, 1.0, 1.0, 2.0, 5.0])
    alpha = 0.7
    p = priority**-alpha / (priority**-alpha).sum()
    expected: Counter[frozenset[int]] = Counter()
    for i, j in permutations(range(6), 2):
        expected[frozenset((i, j))] += p[i] * p[j] / (1 - p[i])  # type: ignore[assignment]
    buffer = buffer_for(2, 3, priority=Priority(alpha, constant(1.0), 0.0))
    found = Counter[frozenset[int]]()
    trials = 4000
    for time in range(3):
        buffer.add(dictionary_step(time + 2))
    names = dict(zip(stored_numbers(buffer).tolist(), range(6), strict=True))  # the index of each one's priority
    for time in range(trials):
        numbers = np.array(list(names))
        buffer.feedback(buffer.gather(numbers), Result({}, torch.from_numpy(priority[list(names.values())])))
        buffer.add(dictionary_step(time % 100 + 5))
        stored = set(stored_numbers(buffer).tolist())
        evicted = [names.pop(number) for number in list(names) if number not in stored]
        found[frozenset(evicted)] += 1
        names |= dict(zip(sorted(stored - names.keys()), evicted, strict=True))
    for pair, share in expected.items():
        assert abs(found[pair] - trials * share) < 5 * np.sqrt(trials * share)
    assert sum(found.values()) == trials


def test_priorities_of_evicted_transitions_are_ignored() -> None:
    buffer = buffer_for(1, 2)
    for time in range(2, 4):
        buffer.add(dictionary_step(time, 1))
    numbers = stored_numbers(buffer).copy()
    batch = buffer.gather(numbers)
    buffer.add(dictionary_step(4, 1))
    (evicted,) = set(numbers.tolist()) - set(stored_numbers(buffer).tolist())
    buffer.feedback(batch, Result({}, torch.from_numpy(np.where(numbers == evicted, 50.0, 3.0))))
    assert sorted(buffer.tree.mass.tolist()) == pytest.approx([1, 3.000001**0.6])
    assert sorted(buffer.inverse.mass.tolist()) == pytest.approx([3.000001**-0.6, 1])


def test_restart_truncates_windows() -> None:
    buffer = buffer_for(2, 10, 3)
    for time in range(2, 4):
        buffer.add(dictionary_step(time))
    buffer.restart()
    for time in range(4, 7):
        buffer.add(dictionary_step(time))
    batch = buffer.gather(stored_numbers(buffer)[:4])
    assert batch.next_obs["image"][:, 0, 0].tolist() == [103] * 4
    assert batch.discount.tolist() == pytest.approx([GAMMA**2] * 2 + [GAMMA] * 2)


def test_small_capacity_raises() -> None:
    with pytest.raises(UsageError, match="too small"):
        buffer_for(2, 1).add(dictionary_step(0))
