"""Replay: n-step transitions against the story, and due batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Step
from tests.core.fakes import assert_same, save_and_load
from tests.core.stories import Story, dictionary_step, stories
from tests.reference import replay

GAMMA = 0.9
CLOCK = Clock(1)


def buffer_for(
    num_envs: int, slots: int, n: int, size: int = 16, every: int = 1, batches: int = 1, together: int = 1
) -> ReplayBuffer:
    pace = ReplaySchedule(size, every, batches, (n + 1) * num_envs)
    return ReplayBuffer(slots * num_envs, pace, n, GAMMA, Seeds(7), together=together)


def check(batch: Transitions, known: dict[int, replay.Transition]) -> set[int]:
    """Check that the reference has each transition of a batch, and return their observations."""
    parts = (
        batch.obs[:, 0],
        batch.reward,
        batch.next_obs[:, 0],
        batch.discount,
        batch.action,
        batch.extras["log_prob"],
    )
    for obs, reward, next_obs, discount, action, log_prob in zip(*(part.tolist() for part in parts), strict=True):
        expected = known[int(obs)]
        assert reward == pytest.approx(expected.reward, rel=1e-4, abs=1e-5)
        assert next_obs == expected.next_obs
        assert discount == pytest.approx(expected.discount, rel=1e-5)
        assert action == int(obs) % 7
        assert log_prob == pytest.approx(-obs / 10)
    return {int(obs) for obs in batch.obs[:, 0].tolist()}


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 30)), st.integers(1, 4), st.integers(0, 6))
def test_batches_equal_the_story(story: Story, n: int, extra: int) -> None:
    """With terminations, truncations, invalid rows, several rows and reused memory."""
    slots = n + 1 + extra
    buffer = buffer_for(story.num_envs, slots, n)
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        known = {}
        for row in story.moments:
            known |= replay.memory(row[: time + 1], slots, n, GAMMA)
        for batch in buffer.batches(CLOCK):
            check(batch, known)


@settings(max_examples=30, deadline=None)
@given(stories(st.integers(6, 20)), st.integers(1, 3))
def test_every_complete_window_is_drawn(story: Story, n: int) -> None:
    """Except windows in the last n - 1 steps that end early because their episode ends."""
    buffer = buffer_for(story.num_envs, 50, n, size=2000)
    length = len(story)
    for step in story.steps():
        buffer.add(step)
    if not buffer.due_batches:
        return
    known = {k: v for row in story.moments for k, v in replay.memory(row, length, n, GAMMA).items()}
    seen = check(next(iter(buffer.batches(CLOCK))), known)
    assert seen == {moment.obs for row in story.moments for moment in row[: length - n + 1] if moment.valid}


@pytest.mark.parametrize("n", [1, 3])
def test_values_of_absent_rows_have_no_effect(n: int) -> None:
    """Neither rewards nor observations nor terminations."""
    batches = []
    for garbage in (0, 1):
        buffer = buffer_for(2, 10, n)
        for time in (0, 2, 3, 4, 5):
            step = dictionary_step(time)
            if time == 2:
                step.valid[0] = False
                step.reward[0], step.terminated[0] = (np.nan, True) if garbage else (0, False)
                step.obs["image"][0] = 100 * garbage
                step = replace(step, ended=bool(garbage))
            buffer.add(step)
        batches.append(buffer.gather(np.array([0, 1])))
    assert_same(*(asdict(batch) for batch in batches))
    assert batches[1].next_obs["image"][0, 0, 0] == (3 if n == 1 else 4)
    assert batches[1].reward[0] == pytest.approx(1 if n == 1 else 1 + GAMMA)
    assert batches[1].discount[0] == pytest.approx(GAMMA if n == 1 else GAMMA**2)


@pytest.mark.parametrize("n", [1, 3])
def test_restart_ends_an_absence(n: int) -> None:
    buffer = buffer_for(2, 10, n)
    for time in (2, 3, 4, 5, 6):
        step = dictionary_step(time)
        step.valid[:] = time != 3
        buffer.add(step)
        if time == 3:
            buffer.restart()
    batch = buffer.gather(np.array([0, 1]))
    assert batch.next_obs["image"][:, 0, 0].tolist() == [103, 103]
    assert batch.discount.tolist() == pytest.approx([GAMMA] * 2)


def test_due_batches_wait_if_all_rows_are_absent() -> None:
    buffer = ReplayBuffer(
        8, ReplaySchedule(batch_size=4, train_freq=1, gradient_steps=1, learning_starts=8), 3, GAMMA, Seeds(0)
    )
    for time in range(2, 10):
        buffer.add(dictionary_step(time))
    assert len(list(buffer.batches(CLOCK))) == 10
    counts = []
    for time in range(10, 17):
        step = dictionary_step(time)
        step.valid[:] = time >= 14
        buffer.add(step)
        counts.append(len(list(buffer.batches(CLOCK))))
    assert counts == [0, 0, 0, 0, 0, 0, 6]


def test_draws_are_uniform() -> None:
    """Also after the ring has wrapped around."""
    buffer = buffer_for(2, 12, 1)
    for time in range(17):
        buffer.add(dictionary_step(time))
    index = buffer.sample(40_000)
    counts = np.bincount(index)
    assert len(counts) == 34
    assert (counts[:10] == 0).all()
    expected = 40_000 / 24
    assert np.abs(counts[10:] - expected).max() < 5 * np.sqrt(expected)


def due_batches(buffer: ReplayBuffer, steps: Iterable[Step]) -> list[int]:
    """Count the batches that each step makes due."""
    counts = []
    for step in steps:
        buffer.add(step)
        counts.append(len(list(buffer.batches(CLOCK))))
    return counts


def test_batches_are_due_every_train_freq_steps() -> None:
    buffer = ReplayBuffer(
        100, ReplaySchedule(batch_size=4, train_freq=3, gradient_steps=2, learning_starts=8), 1, GAMMA, Seeds(0)
    )
    assert due_batches(buffer, map(dictionary_step, range(8))) == [0, 0, 0, 0, 2, 2, 0, 2]  # at 10, 12 and 16 steps


@pytest.mark.parametrize("together", [1, 3, 8])
def test_due_batches_survive_a_resume(together: int) -> None:
    def make() -> ReplayBuffer:
        pace = ReplaySchedule(batch_size=4, train_freq=4, gradient_steps=5, learning_starts=4)
        return ReplayBuffer(100, pace, 1, GAMMA, Seeds(0), together=together)

    buffer = make()
    for time in range(2):
        buffer.add(dictionary_step(time))
    twin = make()
    twin.load_state_dict(save_and_load(buffer.state_dict()))
    expected = [batch.index.tolist() for batch in twin.batches(CLOCK)]
    first = [batch.index.tolist() for batch in islice(buffer.batches(CLOCK), 2)]
    state = save_and_load(buffer.state_dict())
    assert state["owed"] == 3
    resumed = make()
    resumed.load_state_dict(state)
    assert first + [batch.index.tolist() for batch in resumed.batches(CLOCK)] == expected
    assert len(expected) == 5
    assert not list(resumed.batches(CLOCK))


@settings(max_examples=60, deadline=None)
@given(stories(st.integers(1, 20)), st.integers(1, 3), st.integers(2, 6), st.integers(1, 6))
def test_batches_drawn_together_equal_those_drawn_one_by_one(story: Story, n: int, together: int, taken: int) -> None:
    """Batches that are not used before the next step are drawn again."""
    single, grouped = (buffer_for(story.num_envs, n + 5, n, 3, batches=5, together=most) for most in (1, together))
    for step in story.steps():
        for buffer in (single, grouped):
            buffer.add(step)
        for expected, batch in islice(zip(single.batches(CLOCK), grouped.batches(CLOCK), strict=True), taken):
            assert_same(single.state_dict(), grouped.state_dict())
            assert_same(asdict(expected), asdict(batch))
        assert_same(single.state_dict(), grouped.state_dict())


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_batches_of_large_observations_are_drawn_in_smaller_groups(size: int) -> None:
    """Four of these observations fit into a cache."""
    shape = (1, 2**14)
    sizes = []
    buffer = buffer_for(1, 10, 1, size=size, batches=4, together=4)
    for time in range(4):
        obs = np.full(shape, time, np.float32)
        never = np.zeros(1, bool)
        buffer.add(replace(dictionary_step(time, 1), obs=obs, next_obs=obs + 1, truncated=never, ended=False))
    gather = buffer.gather

    def count(index: np.ndarray) -> object:
        sizes.append(len(index))
        return gather(index)

    buffer.gather = count  # type: ignore
    batches = list(buffer.batches(CLOCK))
    assert set(sizes) == {max(size, 4)}
    assert sum(sizes) == size * len(batches)


def test_batches_keep_dictionaries_and_types() -> None:
    buffer = buffer_for(2, 10, 1)
    for time in range(4):
        buffer.add(dictionary_step(time))
    batch = buffer.gather(np.array([0, 2, 3, 6]))  # times 0, 1 (truncated in row 0), 1, 3
    assert batch.obs["image"].dtype == batch.next_obs["image"].dtype
    assert batch.next_obs["image"][:, 0, 0].tolist() == [1, 101, 2, 103]
    assert batch.next_obs["inner"]["place"].tolist() == [10, -10, 21, -30]
    assert batch.discount.tolist() == pytest.approx([GAMMA] * 4)
    assert batch.weight.tolist() == [1] * 4


@settings(max_examples=20, deadline=None)
@given(stories(st.integers(10, 30)))
def test_successors_are_stored_only_at_the_ends_of_episodes(story: Story) -> None:
    """The ring forgets the successors of overwritten steps."""
    buffer = buffer_for(story.num_envs, 4, 1)
    for step in story.steps():
        buffer.add(step)
    last = [moment for row in story.moments for moment in row[-4:]]
    keys = buffer.state_dict()["data"]["obs"][1]["finals"]["keys"]
    assert len(keys) == sum(moment.terminated or moment.truncated for moment in last)


def test_gather_returns_copies() -> None:
    buffer = buffer_for(2, 10, 1)
    for time in range(4):
        buffer.add(dictionary_step(time))
    batch = buffer.gather(np.array([0]))
    batch.obs["image"].fill_(9)
    batch.reward.fill_(9)
    assert buffer.gather(np.array([0])).obs["image"].max() == 0
    assert buffer.gather(np.array([0])).reward == 1


@pytest.mark.parametrize(("capacity", "start", "reason"), [
    (5, 100, "too small"),
    (100, 5, r"^learning_starts is 5, and 2-step returns of 2 environments need 6 steps or more; set"),
])  # fmt: skip
def test_sizes_that_cannot_work_raise(capacity: int, start: int, reason: str) -> None:
    buffer = ReplayBuffer(capacity, ReplaySchedule(4, 1, 1, start), 2, GAMMA, Seeds(0))
    with pytest.raises(UsageError, match=reason):
        buffer.add(dictionary_step(0))
