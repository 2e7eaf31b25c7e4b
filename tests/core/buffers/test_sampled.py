"""Prioritized replay with sampled eviction: nothing else goes, it goes with the right chance, and a resume is exact."""

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
from tests.core.buffers.test_prioritized import both_masses, surprise
from tests.core.buffers.test_replay import GAMMA, check
from tests.core.stories import Story, dictionary_step, stories
from tests.reference import replay

CLOCK = Clock(1)
HALF = Priority(beta=constant(0.5))


def buffer_for(num_envs: int, slots: int, n: int = 1, size: int = 16, priority: Priority = HALF) -> SampledReplay:
    return SampledReplay(
        slots * num_envs, ReplaySchedule(size, 1, 1, (n + 1) * num_envs), n, GAMMA, Seeds(7), priority=priority
    )


def living(buffer: SampledReplay) -> Array:
    return buffer.numbers[: buffer.fill_level] if buffer.finished else np.zeros(0, np.int64)


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 30)), st.integers(1, 4), st.integers(0, 6))
def test_newest_entries_stay_and_as_few_as_possible_go(story: Story, n: int, extra: int) -> None:
    """Every transition is what the story says, with a mass of its own: the largest so far, or what was reported."""
    buffer = buffer_for(story.num_envs, n + 1 + extra, n)
    known: dict[int, replay.Transition] = {}
    masses: dict[int, float] = {}
    before: set[int] = set()
    largest = 1.0
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        new, start = {}, time + 1 - n
        if start >= 0:
            for row in story.moments:
                transition = replay.window(row[: time + 1], start, n, GAMMA)
                if row[start].valid and transition is not None:
                    new[row[start].obs] = transition
        known |= new
        masses |= dict.fromkeys(new, largest)
        numbers = living(buffer)
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
    """Two rows at a time against the chances of all ordered pairs; who comes gets the priorities of those who went."""
    priority, alpha = np.array([0.2, 0.5, 1.0, 1.0, 2.0, 5.0]), 0.7
    chance = priority**-alpha / (priority**-alpha).sum()
    expected: Counter[frozenset[int]] = Counter()
    for one, other in permutations(range(6), 2):
        expected[frozenset((one, other))] += chance[one] * chance[other] / (1 - chance[one])  # type: ignore[assignment]
    buffer, found, trials = (
        buffer_for(2, 3, priority=Priority(alpha, constant(1.0), 0.0)),
        Counter[frozenset[int]](),
        4000,
    )
    for time in range(3):
        buffer.add(dictionary_step(time + 2))
    names = dict(zip(living(buffer).tolist(), range(6), strict=True))  # which of the priorities each transition has
    for time in range(trials):
        numbers = np.array(list(names))
        buffer.feedback(buffer.gather(numbers), Result({}, torch.from_numpy(priority[list(names.values())])))
        buffer.add(dictionary_step(time % 100 + 5))
        there = set(living(buffer).tolist())
        gone = [names.pop(number) for number in list(names) if number not in there]
        found[frozenset(gone)] += 1
        names |= dict(zip(sorted(there - names.keys()), gone, strict=True))
    for pair, share in expected.items():
        assert abs(found[pair] - trials * share) < 5 * np.sqrt(trials * share)
    assert sum(found.values()) == trials


def test_priorities_of_what_is_gone_are_passed_over() -> None:
    buffer = buffer_for(1, 2)
    for time in range(2, 4):
        buffer.add(dictionary_step(time, 1))
    numbers = living(buffer).copy()
    batch = buffer.gather(numbers)
    buffer.add(dictionary_step(4, 1))
    (gone,) = set(numbers.tolist()) - set(living(buffer).tolist())
    buffer.feedback(batch, Result({}, torch.from_numpy(np.where(numbers == gone, 50.0, 3.0))))
    assert sorted(buffer.tree.mass.tolist()) == pytest.approx([1, 3.000001**0.6])
    assert sorted(buffer.inverse.mass.tolist()) == pytest.approx([3.000001**-0.6, 1])


@settings(max_examples=40, deadline=None)
@given(stories(st.integers(1, 20)), st.integers(1, 3), st.integers(0, 4), st.data())
def test_stored_and_read_at_any_moment_it_goes_on_the_same(
    story: Story, n: int, extra: int, data: st.DataObject
) -> None:
    move = data.draw(st.integers(0, len(story) - 1))
    pairs = both_masses(story, move, lambda: buffer_for(story.num_envs, n + 1 + extra, n))
    assert [one for one, _ in pairs] == [other for _, other in pairs]


def test_a_restart_ends_what_is_not_finished() -> None:
    buffer = buffer_for(2, 10, 3)
    for time in range(2, 4):
        buffer.add(dictionary_step(time))
    buffer.restart()
    for time in range(4, 7):
        buffer.add(dictionary_step(time))
    batch = buffer.gather(living(buffer)[:4])
    assert batch.next_obs["image"][:, 0, 0].tolist() == [103] * 4
    assert batch.discount.tolist() == pytest.approx([GAMMA**2] * 2 + [GAMMA] * 2)


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(UsageError, match="too small"):
        buffer_for(2, 1).add(dictionary_step(0))
