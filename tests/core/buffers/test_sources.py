"""Buffers of several actors: steps of actors stay separate, and all are equally likely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
from rlplug_core.buffers.sources import BySource, SourcesReplay, separate_sources
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import NO_EXTRAS, Result, Step
from tests.core.fakes import assert_same, save_and_load

KINDS = [ReplayBuffer, PrioritizedReplay, SampledReplay]
ROWS = 2


def step(source: int, time: int, end: bool = False) -> Step:
    """Make a step with the observation (source, row, time)."""

    def obs(at: int) -> Any:
        return np.array([[source, row, at] for row in range(ROWS)], dtype=np.float32)

    flags = np.zeros(ROWS, bool)
    return Step(
        obs(time),
        np.zeros(ROWS, np.int64),
        np.ones(ROWS, np.float32),
        obs(time + 1),
        flags,
        flags | end,
        flags,
        ~flags,
        end,
        NO_EXTRAS,
        None,
    )


def two_sources(kind: type[ReplayBuffer], n_step: int = 3, capacity: int = 200, train_freq: int = 4) -> SourcesReplay:
    return SourcesReplay(kind(capacity, ReplaySchedule(32, train_freq, 1, 40), n_step, 0.9, Seeds(1)), 2)


def batches(buffer: Any) -> list[Any]:
    found = []
    for batch in buffer.batches(Clock(1000)):
        buffer.feedback(batch, Result({}, torch.rand(len(batch.reward)) + 0.1))
        found.append(batch)
    return found


def fill(buffer: Any, times: dict[int, int]) -> list[Any]:
    """Add chunks of five steps of several sources in turn, and return the due batches."""
    found = []
    done = dict.fromkeys(times, 0)
    while done != times:
        for source, until in times.items():
            for time in range(done[source], min(until, done[source] + 5)):
                buffer.add(step(source, time), source)
                found += batches(buffer)
            done[source] = min(until, done[source] + 5)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_transitions_stay_within_their_source_and_row(kind: type[ReplayBuffer]) -> None:
    found = fill(two_sources(kind), {0: 60, 1: 60})
    assert len(found) > 30
    for batch in found:
        assert set(batch.obs[:, 0].tolist()) == {0, 1}
        change = batch.next_obs - batch.obs
        assert (change[:, :2] == 0).all()
        assert (change[:, 2] == 3).all()


def test_steps_of_all_sources_make_batches_due() -> None:
    single = ReplayBuffer(200, ReplaySchedule(32, 4, 1, 40), 3, 0.9, Seeds(1))
    assert len(fill(two_sources(ReplayBuffer), {0: 30, 1: 30})) == len(fill(single, {0: 60})) > 15


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplay])
def test_steps_of_all_sources_are_equally_likely(kind: type[ReplayBuffer]) -> None:
    """The second actor has three quarters of the steps and of the samples."""
    buffer = two_sources(kind, n_step=1, capacity=4000, train_freq=10_000)
    fill(buffer, {0: 100, 1: 300})
    buffer.due_batches = 600
    sources = torch.cat([batch.obs[:, 0] for batch in buffer.batches(Clock(1))])
    assert len(sources) == 600 * 32
    assert float(sources.mean()) == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplay])
def test_batch_uses_some_of_many_sources(kind: type[ReplayBuffer]) -> None:
    buffer = SourcesReplay(kind(4000, ReplaySchedule(30, 10_000, 1, 40), 1, 0.9, Seeds(1)), 20)
    for source in range(20):
        for time in range(10 + 10 * (source < 5)):
            buffer.add(step(source, time), source)
    buffer.due_batches = 500
    found = [batch.obs[:, 0].long().bincount(minlength=20) for batch in buffer.batches(Clock(1))]
    assert max(int((counts > 0).sum()) for counts in found) <= 8
    assert all(int(counts.sum()) == 30 for counts in found)
    share = torch.stack(found).sum(0) / (500 * 30)
    torch.testing.assert_close(share, torch.tensor([2.0] * 5 + [1.0] * 15) / 25, atol=0.02, rtol=0)


def test_importance_weights_correct_priorities_between_sources() -> None:
    """One source has a hundred times the errors of the other; at beta 1 both have equal weight in a mean."""
    buffer = two_sources(PrioritizedReplay, 1, 4000)
    clock = Clock(100)
    clock.steps = 100
    for source, error in ((0, 100.0), (1, 1.0)):
        for time in range(50):
            buffer.add(step(source, time), source)
        ring = buffer.replays[source]
        ring.feedback(ring.gather(np.arange(50 * ROWS)), Result({}, torch.full((50 * ROWS,), error)))
    found = np.zeros(2)
    for _ in range(200):
        buffer.due_batches = 1
        (batch,) = buffer.batches(clock)
        np.add.at(found, batch.obs[:, 0].numpy().astype(int), batch.weight.numpy())
    assert found[0] / found.sum() == pytest.approx(0.5, abs=0.02)


def test_new_steps_get_the_largest_priority_of_all_sources() -> None:
    buffer = two_sources(PrioritizedReplay, 1)
    for source in (0, 1):
        for time in range(30):
            buffer.add(step(source, time), source)
    buffer.due_batches = 1
    (batch,) = buffer.batches(Clock(1000))
    buffer.feedback(batch, Result({}, 1 + 99 * (batch.obs[:, 0] == 0).float()))
    assert buffer.replays[0].largest == buffer.replays[1].largest == pytest.approx(100**0.6, rel=1e-5)


def test_batches_join_sequences_of_several_sources() -> None:
    shape = SequenceShape(length=4, burn_in=2, period=3)
    pace = ReplaySchedule(8, 4, 1, 40)
    buffer = SourcesReplay(SequenceReplay(shape, 400, pace, 2, 0.9, Seeds(1)), 2)
    for source in (0, 1):
        for time in range(40):
            memory = {"h": np.full((ROWS, 3), 100 * source + time, np.float32)}
            buffer.add(replace(step(source, time), recurrent_state=memory), source)
    buffer.due_batches = 1
    (batch,) = buffer.batches(Clock(1000))
    obs = batch.obs.unflatten(0, (-1, 8))
    assert set(obs[0, :, 0].tolist()) == {0, 1}
    assert (obs[1:] - obs[:-1] == torch.tensor([0.0, 0.0, 1.0])).all()
    assert (batch.recurrent_state["h"][:, 0] == 100 * obs[0, :, 0] + obs[0, :, 2]).all()
    buffer.feedback(batch, Result({}, 1 + obs[0, :, 2]))
    for ring, part in buffer.mixture.last_parts:
        mass = (1 + part.obs.unflatten(0, (-1, len(part.index)))[0, :, 2].double() + 1e-6) ** 0.9
        np.testing.assert_allclose(ring.tree.mass[part.index.numpy() % ring.places], mass, rtol=1e-6)


def test_sources_share_the_capacity_and_have_own_generators() -> None:
    buffer = two_sources(ReplayBuffer, capacity=80)
    fill(buffer, {0: 100, 1: 100})
    assert [ring.data.total for ring in buffer.replays if ring.data] == [40, 40]
    first, second = (ring.generator.random() for ring in buffer.replays)
    assert first != second


@pytest.mark.parametrize("kind", KINDS)
def test_state_of_sources_resumes(kind: type[ReplayBuffer]) -> None:
    buffer, resumed = two_sources(kind), two_sources(kind)
    fill(buffer, {0: 33, 1: 35})
    resumed.load_state_dict(save_and_load(buffer.state_dict()))
    torch.manual_seed(0)
    ours = [(batch.obs, batch.weight) for batch in fill(buffer, {0: 20, 1: 20})]
    torch.manual_seed(0)
    theirs = [(batch.obs, batch.weight) for batch in fill(resumed, {0: 20, 1: 20})]
    assert_same(ours, theirs)
    assert len(ours) > 10


def test_small_capacity_for_several_actors_raises() -> None:
    message = r"a replay of 20 steps is too small for 2 environments for each of 2 actors and 5-step returns; "
    with pytest.raises(UsageError, match=message + "set buffer_size to 24 or more"):
        two_sources(ReplayBuffer, n_step=5, capacity=20).add(step(0, 0))


def test_restart_source_ends_its_windows() -> None:
    buffer = two_sources(ReplayBuffer)
    fill(buffer, {0: 30, 1: 30})
    buffer.restart_source(1)
    for time in range(500, 540):
        buffer.add(step(1, time), 1)
        for batch in batches(buffer):
            assert ((batch.next_obs - batch.obs)[:, 2] <= 3).all()


def test_restart_source_drops_only_its_unfinished_rollout() -> None:
    buffer = BySource(lambda: RolloutBuffer(4))
    for source, time in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)):
        buffer.add(step(source, time), source)
    buffer.restart_source(1)
    buffer.add(step(0, 3), 0)
    buffer.add(step(1, 9), 1)
    (rollout,) = buffer.batches(Clock(1))
    assert rollout.obs[:, :, 0].max() == 0
    assert rollout.obs[:, 0, 2].tolist() == [0, 1, 2, 3, 4]
    assert buffer.state_dict()["1"]["position"] == 1


def test_separate_sources_chooses_the_buffer_for_the_number_of_sources() -> None:
    def make() -> ReplayBuffer:
        return ReplayBuffer(100, ReplaySchedule(4, 1, 1, 10), 1, 0.9, Seeds(0))

    single = separate_sources(make, 1)
    assert isinstance(single, BySource)
    assert type(single.buffer_of(0)) is ReplayBuffer
    assert isinstance(separate_sources(make, 2), SourcesReplay)
    several = SourcesReplay(make(), 2)
    assert separate_sources(lambda: several, 2) is several
