"""The episode buffer returns each finished episode once, complete and with its true end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.episodes import EpisodeBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning.estimators import gae
from tests.core.stories import Story, critic, dictionary_step, stories, value
from tests.reference import returns
from tests.reference.returns import Moment


def episodes_of(story: Story) -> list[list[Moment]]:
    """Return finished episodes, including invalid steps, by the time of their end and then by row."""
    found: list[tuple[int, int, list[Moment]]] = []
    for row, moments in enumerate(story.moments):
        episode: list[Moment] = []
        for time, moment in enumerate(moments):
            episode.append(moment)
            if moment.valid and (moment.terminated or moment.truncated):
                found.append((time, row, episode))
                episode = []
    return [episode for _, _, episode in sorted(found, key=lambda episode: episode[:2])]


def rollouts(story: Story, steps: int, resumed_at: int = -1) -> list[Rollout]:
    """Return all batches of a story; after `resumed_at` steps a new buffer continues from the state."""
    buffer = EpisodeBuffer(steps)
    found = []
    for time, step in enumerate(story.steps()):
        if time == resumed_at:
            state = buffer.state_dict()
            buffer = EpisodeBuffer(steps)
            buffer.load_state_dict(state)
        buffer.add(step)
        found += list(buffer.batches(Clock(1)))
        assert not list(buffer.batches(Clock(1)))
    return found


@settings(max_examples=100, deadline=None)
@given(stories(st.integers(1, 30)), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
def test_batches_are_whole_episodes_with_correct_advantages(story: Story, steps: int, gamma: float, lam: float) -> None:
    """Episodes come once and in order; a batch is due after `steps` transitions."""
    waiting = episodes_of(story)
    for rollout in rollouts(story, steps):
        advantage, _ = gae(rollout, *rollout.values(critic), gamma, lam)
        start = 0
        while start < len(rollout.weight):
            episode = waiting.pop(0)
            assert rollout.obs[start : start + len(episode), 0, 0].tolist() == [moment.obs for moment in episode]
            assert rollout.weight[start : start + len(episode), 0].tolist() == [moment.valid for moment in episode]
            for time, wanted in returns.gae(episode, value, gamma, lam).items():
                assert advantage[start + time, 0] == pytest.approx(wanted, rel=1e-4, abs=1e-4)
            start += len(episode)
        assert rollout.weight.sum() >= steps
    assert sum(moment.valid for episode in waiting for moment in episode) < steps


@settings(max_examples=50, deadline=None)
@given(stories(st.integers(2, 30)), st.integers(1, 12), st.integers(0, 29))
def test_state_resumes_at_any_step(story: Story, steps: int, moment: int) -> None:
    for expected, resumed in zip(rollouts(story, steps), rollouts(story, steps, moment), strict=True):
        for name in ("obs", "action", "reward", "terminated", "truncated", "weight"):
            np.testing.assert_array_equal(getattr(expected, name), getattr(resumed, name))
        np.testing.assert_array_equal(expected.truncations.obs, resumed.truncations.obs)


def test_long_episode_continues_during_many_short_ones() -> None:
    """The buffer reuses its memory, and grows for the 500 steps of the long episode."""
    length = 500
    numbers = iter(range(10_000))
    short, long = ([Moment(next(numbers), 1.0, next(numbers), False, False, True) for _ in range(length)] for _ in "ab")
    short = [Moment(step.obs, 1.0, step.next_obs, time % 5 == 4, False, True) for time, step in enumerate(short)]
    long[-1] = Moment(long[-1].obs, 1.0, long[-1].next_obs, True, False, True)
    (rollout,) = rollouts(Story([short, long]), 2 * length)
    assert len(rollout.weight) == 2 * length
    assert rollout.obs[length:-1, 0, 0].tolist() == [moment.obs for moment in long]


@pytest.mark.parametrize("length", [40, 63, 64, 65, 200])
def test_buffer_wraps_around_between_episodes_of_any_length(length: int) -> None:
    moments = [Moment(time, 1.0, time + 1, time % length == length - 1, False, True) for time in range(5 * length)]
    found = rollouts(Story([moments]), 1)
    assert [rollout.obs[0, 0, 0] for rollout in found] == [length * number for number in range(5)]
    assert [len(rollout.weight) for rollout in found] == [length] * 5


def test_invalid_step_does_not_end_an_episode() -> None:
    moments = [Moment(0, 1.0, 1, False, False, True), Moment(1, 9.0, 2, True, False, False)]
    moments += [Moment(2, 1.0, 3, True, False, True)]
    (rollout,) = rollouts(Story([moments]), 1)
    assert rollout.weight.ravel().tolist() == [1, 0, 1]


def test_restart_drops_unfinished_episodes() -> None:
    buffer = EpisodeBuffer(1)
    spans = ((0, 1), (2, 3))
    first, second = (Story([[Moment(at, 1.0, at + 1, at > 2, False, True) for at in span]]) for span in spans)
    for step in first.steps():
        buffer.add(step)
    buffer.restart()
    for step in second.steps():
        buffer.add(step)
    (rollout,) = buffer.batches(Clock(1))
    assert rollout.obs[:, 0, 0].tolist() == [2, 3, 4]


def test_buffer_stores_nested_observations() -> None:
    buffer = EpisodeBuffer(1)
    found: list[Any] = []
    for time in range(3):
        buffer.add(dictionary_step(time))
        found += list(buffer.batches(Clock(1)))
    (rollout,) = found
    assert rollout.obs["inner"]["place"].ravel().tolist() == [0, 10, -10]
    assert rollout.obs["image"].shape == (3, 1, 2, 2)
    assert rollout.truncated.ravel().tolist() == [False, True]
