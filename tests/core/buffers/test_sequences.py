"""Replay of sequences: steps of batches against the story, and the sequences that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.prioritized import Priority
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Step
from tests.core.fakes import assert_same, save_and_load
from tests.core.stories import Story, dictionary_step, stories
from tests.reference import replay

GAMMA = 0.9
CLOCK = Clock(1)
SHAPES = st.builds(SequenceShape, st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))


def buffer_for(num_envs: int, slots: int, shape: SequenceShape, n: int, size: int = 8) -> SequenceReplay:
    span = shape.burn_in + shape.length + n - 1
    pace = ReplaySchedule(size, 1, 1, (span + 1) * num_envs)
    priority = Priority(beta=constant(0.5))
    return SequenceReplay(shape, slots * num_envs, pace, n, GAMMA, Seeds(7), priority=priority)


def steps_with_memory(story: Story) -> Iterator[Step]:
    """Yield steps with the observation as memory; every third observation starts an episode."""
    for step in story.steps():
        yield replace(step, is_first=step.obs[:, 0] % 3 == 0, recurrent_state={"h": step.obs.copy()})


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 40)), SHAPES, st.integers(1, 3), st.integers(0, 9))
def test_batches_equal_the_story(story: Story, shape: SequenceShape, n: int, extra: int) -> None:
    """With ends inside of sequences, the end of the ring, invalid rows, several rows and reused memory."""
    slots = shape.burn_in + shape.length + n + extra
    buffer = buffer_for(story.num_envs, slots, shape, n)
    for time, step in enumerate(steps_with_memory(story)):
        buffer.add(step)
        for batch in buffer.batches(CLOCK):
            check(batch, story, (shape, n), time)
            buffer.feedback(batch, Result({}, batch.index.double() % 5))


def check(batch: Transitions, story: Story, kind: tuple[SequenceShape, int], now: int) -> None:
    shape, n = kind
    count = len(batch.index)
    span = shape.burn_in + shape.length + n - 1
    rows = [row[: now + 1] for row in story.moments]
    assert len(batch.weight) == span * count
    for index, weight in enumerate(batch.weight.tolist()):
        t, b = divmod(index, count)
        start, row = divmod(int(batch.index[b]), story.num_envs)
        moment = rows[row][start + t]
        assert start % shape.period == 0
        assert rows[row][start].valid
        assert batch.recurrent_state["h"][b].item() == rows[row][start].obs
        assert batch.obs[index].item() == moment.obs
        assert batch.extras["is_first"][index].item() == (moment.obs % 3 == 0)
        assert batch.extras["valid"][index].item() == moment.valid
        assert (weight > 0) == (moment.valid and shape.burn_in <= t < shape.burn_in + shape.length)
        if weight > 0:
            expected = replay.window(rows[row], start + t, n, GAMMA)
            assert expected is not None
            assert batch.action[index].item() == moment.obs % 7
            assert batch.reward[index].item() == pytest.approx(expected.reward, rel=1e-4, abs=1e-5)
            assert batch.discount[index].item() == pytest.approx(expected.discount, rel=1e-5)
            assert batch.next_obs[index].item() == expected.next_obs
            last = rows[row][start + t + int(batch.extras["later"][index])]
            assert expected.next_obs == last.next_obs


@settings(max_examples=50, deadline=None)
@given(stories(st.integers(12, 40), absent=False, next_step=False), SHAPES, st.integers(1, 3))
def test_every_complete_sequence_is_drawn(story: Story, shape: SequenceShape, n: int) -> None:
    span = shape.burn_in + shape.length + n - 1
    buffer = buffer_for(story.num_envs, span + 6, shape, n, size=500)
    for step in steps_with_memory(story):
        buffer.add(step)
    batch, *_ = buffer.batches(CLOCK)
    times = [time for time in range(max(0, len(story) - span - 6), len(story) - span + 1) if time % shape.period == 0]
    numbers = {time * story.num_envs + row for time in times for row in range(story.num_envs)}
    assert set(batch.index.tolist()) == numbers
    torch.testing.assert_close(batch.weight[batch.weight > 0], torch.ones(int((batch.weight > 0).sum())))


@settings(max_examples=50, deadline=None)
@given(stories(st.integers(8, 30)), SHAPES, st.integers(0, 29))
def test_state_resumes_at_any_step(story: Story, shape: SequenceShape, move: int) -> None:
    buffers = [buffer_for(story.num_envs, 12, shape, 2) for _ in range(2)]
    for time, step in enumerate(steps_with_memory(story)):
        if time == move:
            state = save_and_load(buffers[1].state_dict())
            buffers[1] = buffer_for(story.num_envs, 12, shape, 2)
            buffers[1].load_state_dict(state)
        for buffer in buffers:
            buffer.add(step)
        for expected, found in zip(buffers[0].batches(CLOCK), buffers[1].batches(CLOCK), strict=True):
            assert_same(expected.map(torch.Tensor.numpy).obs, found.map(torch.Tensor.numpy).obs)
            for buffer, batch in zip(buffers, (expected, found), strict=True):
                buffer.feedback(batch, Result({}, batch.index.double() % 5))
    assert_same(buffers[0].state_dict(), buffers[1].state_dict())


def test_sequences_are_drawn_by_priority() -> None:
    """Priorities 3 and 1 with alpha 1: P = 3/4, weights 1/√3 and 1."""
    shape = SequenceShape(2, 1, 3)
    ones = Priority(alpha=1.0, beta=constant(0.5), epsilon=1e-12)
    buffer = SequenceReplay(shape, 100, ReplaySchedule(4000, 1, 1, 8), 1, GAMMA, Seeds(7), priority=ones)
    for time in range(6):
        buffer.add(dictionary_step(time))
    index = torch.tensor([0, 1, 6, 7])
    buffer.feedback(buffer.gather(index.numpy()), Result({}, torch.tensor([3.0, 0.0, 1.0, 0.0])))
    batch = buffer.draw(4000, CLOCK)
    assert set(batch.index.tolist()) == {0, 6}
    assert (batch.index == 0).double().mean().item() == pytest.approx(0.75, abs=0.01)
    weight = batch.weight.view(3, 4000)
    assert (weight[0] == 0).all()
    torch.testing.assert_close(weight[1], torch.where(batch.index == 0, 3**-0.5, 1.0))
    start = 10 * int(batch.index[0]) // 2
    assert batch.obs["inner"]["place"].view(3, 4000)[:, 0].tolist() == [start, start + 10, start + 20]


def test_capacity_below_a_sequence_raises() -> None:
    buffer = SequenceReplay(SequenceShape(8, 4, 4), 10, ReplaySchedule(4, 1, 1, 30), 3, GAMMA, Seeds(7))
    with pytest.raises(UsageError, match="of 10 steps is too small for 2 environments and sequences of 14 steps"):
        buffer.add(dictionary_step(0))


def test_buffer_copies_recurrent_states() -> None:
    buffer = buffer_for(2, 8, SequenceShape(2, 0, 1), 1)
    for time in range(4):
        step = dictionary_step(time)
        buffer.add(step)
        step.recurrent_state["h"].fill(np.nan)
    assert buffer.gather(np.array([0, 3, 4])).recurrent_state["h"][:, 0].tolist() == [0, 1, 2]


def test_sequences_without_recurrent_state_are_equal() -> None:
    """A model that predicts several steps needs sequences, but its agent has no recurrent state."""
    memory, none = (buffer_for(2, 8, SequenceShape(3, 0, 1), 1) for _ in range(2))
    for time in range(7):
        memory.add(dictionary_step(time))
        none.add(replace(dictionary_step(time), recurrent_state=None))
    resumed = buffer_for(2, 8, SequenceShape(3, 0, 1), 1)
    resumed.load_state_dict(save_and_load(none.state_dict()))
    expected, *others = (buffer.draw(4, CLOCK) for buffer in (memory, none, resumed))
    for batch in others:
        assert batch.recurrent_state is None
        for name in ("weight", "obs", "action", "reward", "discount", "next_obs", "index", "extras"):
            assert_same(getattr(batch.map(torch.Tensor.numpy), name), getattr(expected.map(torch.Tensor.numpy), name))
    assert none.join(others).recurrent_state is None
