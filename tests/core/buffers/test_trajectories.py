"""The trajectory replay: each new rollout once, then stored rollouts by the ratio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Rollout
from rlplug_core.buffers.make import RolloutReplay
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.buffers.trajectories import TrajectoryReplay
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant, linear
from rlplug_core.protocols import SupportsSources
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, tree_map
from tests.core.fakes import save_and_load
from tests.core.stories import Story, critic, dictionary_step, stories

NAMES = ("obs", "action", "reward", "terminated", "truncated", "is_first", "weight", "extras")


def content(rollout: Rollout) -> list[Any]:
    """Return a rollout and the values of its successors as lists."""
    found = [tree_map(lambda array: array.tolist(), getattr(rollout, name)) for name in NAMES]
    values = [part.tolist() for part in rollout.values(critic)]
    return [*found, rollout.whole, rollout.truncations.index[: rollout.truncations.count].tolist(), *values]


def replay(story: Story, steps: int, stop: tuple[int, int] | None = None, **options: Any) -> list[tuple[int, Any]]:
    """Return each batch and its time; at `stop` = (time, batches) a new buffer continues from the state."""

    def make() -> TrajectoryReplay:
        return TrajectoryReplay(steps, **{"capacity": 3, "ratio": 1.5, "start": 1, "seeds": Seeds(4), **options})

    buffer = make()
    found = []
    for time, step in enumerate(story.steps()):
        buffer.add(step)
        taken = 0
        batches = iter(buffer.batches(Clock(1)))
        while True:
            if stop == (time, taken):
                state = buffer.state_dict()
                buffer = make()
                buffer.load_state_dict(state)
                batches = iter(buffer.batches(Clock(1)))
                stop = None
            batch = next(batches, None)
            if batch is None:
                break
            found.append((time, content(batch)))
            taken += 1
    return found


@settings(max_examples=60, deadline=None)
@given(stories(st.integers(1, 24)), st.integers(1, 4), st.integers(1, 4))
def test_new_rollouts_come_before_stored_ones(story: Story, steps: int, capacity: int) -> None:
    """The first batch of a step equals that of a rollout buffer; the others are among the last `capacity`."""
    plain = RolloutBuffer(steps)
    expected = dict[int, Any]()
    for time, step in enumerate(story.steps()):
        plain.add(step)
        for rollout in plain.batches(Clock(1)):
            expected[time] = content(rollout)
    seen: dict[int, int] = {}
    for time, batch in replay(story, steps, capacity=capacity):
        seen[time] = seen.get(time, 0) + 1
        if seen[time] == 1:
            assert batch == expected[time]
        else:
            assert batch in [expected[t] for t in sorted(expected) if t <= time][-capacity:]
    assert seen.keys() == expected.keys()


@settings(max_examples=60, deadline=None)
@given(stories(st.integers(4, 24)), st.integers(1, 4), st.integers(0, 23), st.integers(0, 3))
def test_state_resumes_between_any_two_batches(story: Story, steps: int, time: int, batches: int) -> None:
    assert replay(story, steps) == replay(story, steps, (time, batches))


def test_number_of_replays_is_poisson_and_draws_are_uniform() -> None:
    rollouts = 4000
    ratio = 2.5
    capacity = 4
    buffer = TrajectoryReplay(1, capacity, ratio, 10, Seeds(0))
    counts = []
    slots = np.zeros(capacity)
    for number in range(rollouts):
        buffer.add(dictionary_step(number % 100))
        batches = [int(batch.obs["inner"]["place"][0, 0] // 10) for batch in buffer.batches(Clock(1))]
        assert batches[0] == number % 100
        if number < 9:
            assert len(batches) == 1, "replay starts after 10 rollouts"
        else:
            counts.append(len(batches) - 1)
            for drawn in batches[1:]:
                slots[(number - drawn) % 100] += 1
    assert np.mean(counts) == pytest.approx(ratio, abs=4 * (ratio / len(counts)) ** 0.5)
    assert np.var(counts) == pytest.approx(ratio, rel=0.15)
    assert slots / slots.sum() == pytest.approx(np.full(capacity, 1 / capacity), abs=0.02)


def test_ratio_follows_a_schedule() -> None:
    buffer = TrajectoryReplay(1, 4, linear(0.0, 4.0), 1, Seeds(0))
    counts = []
    for number in range(1000):
        buffer.add(dictionary_step(number % 100))
        counts.append(len(list(buffer.batches(Clock(1000, number)))) - 1)
    assert np.mean(counts[:500]) == pytest.approx(1, abs=0.2)
    assert np.mean(counts[500:]) == pytest.approx(3, abs=0.3)


def test_replay_stores_memory_and_nested_observations() -> None:
    buffer = TrajectoryReplay(2, 2, 0.0, 1, Seeds(0))
    found: list[Rollout] = []
    for time in range(4):
        buffer.add(dictionary_step(time))
        found += list(buffer.batches(Clock(1)))
    first, second = found
    assert first.recurrent_state["h"].tolist() == [[0] * 3] * 2
    assert second.recurrent_state["h"].tolist() == [[2] * 3] * 2
    assert second.obs["inner"]["place"].tolist() == [[20, 21], [30, 31], [-30, -31]]


def test_restart_drops_the_unfinished_rollout() -> None:
    buffer = TrajectoryReplay(2, 2, 0.0, 1, Seeds(0))
    for time in (0, 5, 6):
        buffer.add(dictionary_step(time))
        if time == 0:
            buffer.restart()
    (rollout,) = buffer.batches(Clock(1))
    assert rollout.obs["inner"]["place"][:, 0].tolist() == [50, 60, -60]


def numbered_step(source: int, time: int) -> Any:
    """Make a step of two rows with the observation 100 * source + time."""
    step = dictionary_step(time)
    step.obs["inner"]["place"][:] = 100 * source + time
    return step


def observations(rollout: Rollout) -> list[int]:
    found: list[int] = rollout.obs["inner"]["place"][:-1, 0].tolist()
    return found


def test_rollouts_of_sources_stay_separate() -> None:
    buffer = TrajectoryReplay(3, 4, 2.0, 1, Seeds(0))
    given = list[list[int]]()
    assert isinstance(buffer, SupportsSources)
    for time in range(12):
        for source in (1, 0):
            buffer.add(numbered_step(source, time), source)
            given += [observations(rollout) for rollout in buffer.batches(Clock(1))]
    known = [[100 * source + time + k for k in range(3)] for time in (0, 3, 6, 9) for source in (0, 1)]
    assert sorted(set(map(tuple, given))) == sorted(map(tuple, known))
    assert buffer.count == 8
    assert len(given) > 8


def test_restart_source_drops_only_its_unfinished_rollout() -> None:
    buffer = TrajectoryReplay(3, 4, 0.0, 1, Seeds(0))
    given = list[list[int]]()
    for time in range(5):
        if time == 2:
            buffer.restart_source(1)
        for source in (0, 1):
            buffer.add(numbered_step(source, time), source)
            given += [observations(rollout) for rollout in buffer.batches(Clock(1))]
    assert given == [[0, 1, 2], [102, 103, 104]]


def test_new_rollouts_can_be_left_out() -> None:
    counts = {True: 0, False: 0}
    for fresh in counts:
        buffer = TrajectoryReplay(2, 5, 1.5, 1, Seeds(0), fresh=fresh)
        for time in range(200):
            buffer.add(numbered_step(0, time % 100))
            counts[fresh] += len(list(buffer.batches(Clock(1))))
    assert counts[True] == counts[False] + 100
    assert counts[False] == pytest.approx(150, abs=60)


@pytest.mark.parametrize("ratio", [0.0, constant(0.0)])
def test_ratio_0_gives_a_rollout_buffer(ratio: Any) -> None:
    replay = RolloutReplay(ratio, 100)
    assert not replay.on
    assert isinstance(replay.buffer(5, 2, Seeds(0)), RolloutBuffer)


@pytest.mark.parametrize("ratio", [0.5, constant(2.0), linear(0.0, 1.0)])
def test_replay_converts_env_steps_to_rollouts(ratio: Any) -> None:
    replay = RolloutReplay(ratio, 99, learning_starts=21)
    assert replay.on
    buffer = replay.buffer(5, 2, Seeds(0))
    assert isinstance(buffer, TrajectoryReplay)
    assert (buffer.capacity, buffer.start, buffer.fresh) == (9, 3, True)


def test_rollouts_are_drawn_by_gradient_norms() -> None:
    """Norms 1, 4 and 9 with the exponent 0.5 give 1 : 2 : 3; a new rollout gets the largest norm."""
    buffer = TrajectoryReplay(1, 3, 0.0, 1, Seeds(0), alpha=0.5)
    counts = np.zeros(3)
    for time, norm in enumerate((1.0, 4.0, 9.0)):
        buffer.add(dictionary_step(time))
        (batch,) = buffer.batches(Clock(1000))
        buffer.feedback(batch, Result({"loss/gradient_norm": torch.tensor(norm)}))
    assert buffer.priorities.tolist() == [1.0, 4.0, 9.0]
    for _ in range(6000):
        counts[buffer._draw()] += 1
    np.testing.assert_allclose(counts / 6000, [1 / 6, 2 / 6, 3 / 6], atol=0.02)
    buffer.add(dictionary_step(3))
    list(buffer.batches(Clock(1000)))
    assert buffer.priorities.tolist() == [9.0, 4.0, 9.0]
    resumed = TrajectoryReplay(1, 3, 0.0, 1, Seeds(5), alpha=0.5)
    resumed.load_state_dict(save_and_load(buffer.state_dict()))
    assert [resumed._draw() for _ in range(20)] == [buffer._draw() for _ in range(20)]
