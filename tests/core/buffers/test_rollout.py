"""The rollout buffer: contents, state and due rollouts."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning.estimators import gae
from tests.core.fakes import assert_same, leaves, save_and_load
from tests.core.stories import Story, critic, dictionary_step, stories


def rollouts(story: Story, steps: int) -> list[Any]:
    """Copy the content of all rollouts of a story."""
    buffer = RolloutBuffer(steps)
    contents = []
    for step in story.steps():
        buffer.add(step)
        contents += [content(rollout) for rollout in buffer.batches(Clock(1))]
    return contents


def resume(buffer: RolloutBuffer) -> RolloutBuffer:
    resumed = RolloutBuffer(buffer.steps)
    resumed.load_state_dict(save_and_load(buffer.state_dict()))
    return resumed


def content(rollout: Rollout) -> Any:
    used = rollout.truncations.count
    parts = {f.name: getattr(rollout, f.name) for f in fields(rollout) if f.name not in ("truncations", "views")}
    values = gae(rollout, *rollout.values(critic), 0.9, 0.8)
    return [
        array.copy()
        for array in leaves([parts, rollout.truncations.obs[:used], rollout.truncations.index[:used], values])
    ]


@settings(max_examples=40, deadline=None)
@given(stories(st.integers(1, 12)), st.integers(1, 5), st.data())
def test_state_resumes_at_any_step(story: Story, steps: int, data: st.DataObject) -> None:
    moves = data.draw(st.sets(st.integers(0, len(story) - 1)))
    buffer = RolloutBuffer(steps)
    contents = []
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        if time in moves:
            buffer = resume(buffer)
        contents += [content(rollout) for rollout in buffer.batches(Clock(1))]
    for found, expected in zip(contents, rollouts(story, steps), strict=True):
        for array, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_state_is_a_copy() -> None:
    """The next rollout is truncated at another step and reuses the memory of the saved one."""
    buffer = RolloutBuffer(3)
    for time in (0, 1):
        buffer.add(dictionary_step(time))
    state = buffer.state_dict()
    before = copy.deepcopy(state)
    truncated = replace(dictionary_step(7), truncated=np.array([False, True]), ended=True)
    for step in (dictionary_step(2), truncated, truncated):
        buffer.add(step)
        list(buffer.batches(Clock(1)))
    assert state["cuts"]["index"].tolist() == [2]
    assert_same(before, state)


@settings(max_examples=30, deadline=None)
@given(stories(st.just(4), absent=False, next_step=False))
def test_buffer_copies_the_arrays_of_steps(story: Story) -> None:
    buffer = RolloutBuffer(4)
    for step in story.steps():  # overwrites the arrays of the steps before
        buffer.add(step)
    (rollout,) = buffer.batches(Clock(1))
    for row, moments in enumerate(story.moments):
        assert rollout.obs[:4, row, 0].tolist() == [moment.obs for moment in moments]
        assert rollout.obs[4, row, 0] == moments[-1].next_obs
        assert rollout.reward[:, row].tolist() == [moment.reward for moment in moments]
        assert rollout.action[:, row].tolist() == [moment.obs % 7 for moment in moments]
        assert rollout.terminated[:, row].tolist() == [moment.terminated for moment in moments]
        np.testing.assert_allclose(rollout.extras["log_prob"][:, row], [-moment.obs / 10 for moment in moments])


@pytest.mark.parametrize("resumes", [False, True])
def test_rollouts_keep_dictionaries_types_and_memory(resumes: bool) -> None:
    buffer = RolloutBuffer(3)
    for time in range(6):
        step = dictionary_step(time)
        buffer.add(step)
        buffer = resume(buffer) if resumes else buffer
        step.recurrent_state["h"].fill(np.nan)
        for rollout in buffer.batches(Clock(1)):
            start = time - 2
            assert rollout.obs["image"].dtype == np.uint8
            assert rollout.obs["image"][:, 0, 0, 0].tolist() == [start, start + 1, start + 2, 100 + time]
            assert rollout.obs["inner"]["place"][3].tolist() == [-10 * time, -10 * time - 1]
            assert (rollout.recurrent_state["h"] == start).all()  # the memory at the first row, copied
            assert rollout.truncations.count == (start == 0)
            if rollout.truncations.count:
                assert rollout.truncations.obs["image"][0, 0, 0] == 101
                assert rollout.truncations.index[0] == 2
    assert start == 3


def test_unused_truncations_hold_valid_observations() -> None:
    """Networks evaluate them too, and a space that starts at 5 has no 0."""
    buffer = RolloutBuffer(8)
    truncations = []
    for time in range(5, 13):
        obs = np.array([time, time])
        after = np.array([time + 1, time + 1])
        cut = np.array([True, time == 9])
        step = replace(dictionary_step(time), obs=obs, next_obs=after, truncated=cut, ended=True, recurrent_state=None)
        buffer.add(step)
        if time == 9:
            buffer = resume(buffer)
        assert buffer.rollout is not None
        cuts = buffer.rollout.truncations
        truncations.append((cuts.count, len(cuts.index), cuts.obs.min()))
    assert any(used < size for used, size, _ in truncations)
    assert all(least >= 5 for _, _, least in truncations)
    early = RolloutBuffer(4)
    early.add(replace(dictionary_step(0), obs=np.array([5, 6]), next_obs=np.array([6, 7]), recurrent_state=None))
    assert resume(early).rollout.truncations.obs.min() >= 5  # type: ignore[union-attr]


def test_each_rollout_is_returned_once() -> None:
    buffer = RolloutBuffer(2)
    counts = []
    for time in range(5):
        buffer.add(dictionary_step(time))
        counts.append(len(list(buffer.batches(Clock(1)))) + len(list(buffer.batches(Clock(1)))))
    assert counts == [0, 1, 0, 1, 0]


def test_samples_are_in_time_order_and_share_memory() -> None:
    buffer = RolloutBuffer(3)
    for time in range(3):
        buffer.add(dictionary_step(time))
    (rollout,) = buffer.batches(Clock(1))
    samples = rollout.samples(np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32), torch.device("cpu"))
    assert samples.obs["inner"]["place"].tolist() == [0, 1, 10, 11, 20, 21]
    assert samples.obs["image"].shape == (6, 2, 2)
    rollout.obs["inner"]["place"][0, 0] = 99
    assert samples.obs["inner"]["place"][0] == 99
