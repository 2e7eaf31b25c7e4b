"""The rollout buffer: what it holds, keeps and gives back."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning.estimators import gae
from tests.core.fakes import assert_same, leaves, stored
from tests.core.stories import Story, critic, dictionary_step, stories


def rollouts(story: Story, steps: int) -> list[Any]:
    """What a learner sees of every rollout, copied."""
    buffer, seen = RolloutBuffer(steps), []
    for step in story.steps():
        buffer.add(step)
        seen += [seen_of(rollout) for rollout in buffer.batches(Clock(1))]
    return seen


def moved(buffer: RolloutBuffer) -> RolloutBuffer:
    other = RolloutBuffer(buffer.steps)
    other.load_state_dict(stored(buffer.state_dict()))
    return other


def seen_of(rollout: Rollout) -> Any:
    used = rollout.truncations.count
    whole = {f.name: getattr(rollout, f.name) for f in fields(rollout) if f.name not in ("truncations", "views")}
    values = gae(rollout, *rollout.values(critic), 0.9, 0.8)
    return [
        array.copy()
        for array in leaves([whole, rollout.truncations.obs[:used], rollout.truncations.index[:used], values])
    ]


@settings(max_examples=40, deadline=None)
@given(stories(st.integers(1, 12)), st.integers(1, 5), st.data())
def test_stored_and_read_at_any_moment_it_goes_on_the_same(story: Story, steps: int, data: st.DataObject) -> None:
    """Whether a rollout is due or not, the buffer may move to a file and into a new buffer."""
    moves = data.draw(st.sets(st.integers(0, len(story) - 1)))
    buffer, seen = RolloutBuffer(steps), []
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        if time in moves:
            buffer = moved(buffer)
        seen += [seen_of(rollout) for rollout in buffer.batches(Clock(1))]
    for ours, expected in zip(seen, rollouts(story, steps), strict=True):
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_state_stays_as_it_was_while_the_buffer_goes_on() -> None:
    """The next rollout is truncated elsewhere, in the memory of the one that was saved."""
    buffer = RolloutBuffer(3)
    for time in (0, 1):
        buffer.add(dictionary_step(time))
    state = buffer.state_dict()
    before = copy.deepcopy(state)
    elsewhere = replace(dictionary_step(7), truncated=np.array([False, True]), ended=True)
    for step in (dictionary_step(2), elsewhere, elsewhere):
        buffer.add(step)
        list(buffer.batches(Clock(1)))
    assert state["cuts"]["index"].tolist() == [2]
    assert_same(before, state)


@settings(max_examples=30, deadline=None)
@given(stories(st.just(4), absent=False, next_step=False))
def test_it_holds_what_was_added_whatever_the_environment_does_to_its_arrays(story: Story) -> None:
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


def test_dictionaries_types_and_memory_stay_as_they_are() -> None:
    buffer = RolloutBuffer(3)
    for time in range(6):
        step = dictionary_step(time)
        buffer.add(step)
        step.recurrent_state["h"].fill(np.nan)
        for rollout in buffer.batches(Clock(1)):
            begin = time - 2
            assert rollout.obs["image"].dtype == np.uint8
            assert rollout.obs["image"][:, 0, 0, 0].tolist() == [begin, begin + 1, begin + 2, 100 + time]
            assert rollout.obs["inner"]["place"][3].tolist() == [-10 * time, -10 * time - 1]
            assert (rollout.recurrent_state["h"] == begin).all()  # the memory at the first row, copied
            assert rollout.truncations.count == (begin == 0)
            if rollout.truncations.count:
                assert rollout.truncations.obs["image"][0, 0, 0] == 101
                assert rollout.truncations.index[0] == 2
    assert begin == 3


def test_memory_and_dictionaries_are_stored() -> None:
    buffer = RolloutBuffer(3)
    for time in range(3):
        buffer.add(dictionary_step(time))
        buffer = moved(buffer)
    (rollout,) = buffer.batches(Clock(1))
    assert (rollout.recurrent_state["h"] == 0).all()
    assert rollout.recurrent_state["h"].shape == (2, 3)
    assert rollout.obs["inner"]["place"][:, 0].tolist() == [0, 10, 20, -20]
    assert rollout.truncations.obs["image"][0, 0, 0] == 101


def test_places_that_no_cut_has_taken_hold_observations() -> None:
    """Networks see them too, and in a space that begins at 5 there is no 0."""
    buffer, seen = RolloutBuffer(8), []
    for time in range(5, 13):
        obs, after, cut = np.array([time, time]), np.array([time + 1, time + 1]), np.array([True, time == 9])
        step = replace(dictionary_step(time), obs=obs, next_obs=after, truncated=cut, ended=True, recurrent_state=None)
        buffer.add(step)
        if time == 9:
            buffer = moved(buffer)
        assert buffer.rollout is not None
        seen.append(
            (
                buffer.rollout.truncations.count,
                len(buffer.rollout.truncations.index),
                buffer.rollout.truncations.obs.min(),
            )
        )
    assert any(used < size for used, size, _ in seen)
    assert all(least >= 5 for _, _, least in seen)
    early = RolloutBuffer(4)
    early.add(replace(dictionary_step(0), obs=np.array([5, 6]), next_obs=np.array([6, 7]), recurrent_state=None))
    assert moved(early).rollout.truncations.obs.min() >= 5  # type: ignore[union-attr]


def test_nothing_is_handed_out_twice_or_early() -> None:
    buffer = RolloutBuffer(2)
    counts = []
    for time in range(5):
        buffer.add(dictionary_step(time))
        counts.append(len(list(buffer.batches(Clock(1)))) + len(list(buffer.batches(Clock(1)))))
    assert counts == [0, 1, 0, 1, 0]


def test_rows_of_a_batch_are_in_time_order_and_share_the_memory() -> None:
    buffer = RolloutBuffer(3)
    for time in range(3):
        buffer.add(dictionary_step(time))
    (rollout,) = buffer.batches(Clock(1))
    samples = rollout.samples(np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32), torch.device("cpu"))
    assert samples.obs["inner"]["place"].tolist() == [0, 1, 10, 11, 20, 21]
    assert samples.obs["image"].shape == (6, 2, 2)
    rollout.obs["inner"]["place"][0, 0] = 99
    assert samples.obs["inner"]["place"][0] == 99
