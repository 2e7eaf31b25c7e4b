"""Extras that a learner writes for steps, against a dictionary from step to value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.device_replay import DeviceReplay
from rlplug_core.buffers.prioritized import PrioritizedReplay, Priority
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.buffers.sequences import SequenceReplay, SequenceShape
from rlplug_core.buffers.sources import SourcesReplay
from rlplug_core.clock import Clock
from rlplug_core.errors import PluginError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Step
from tests.core.fakes import assert_same, save_and_load
from tests.core.stories import Story, stories

CLOCK = Clock(100)
SEQUENCES = SequenceShape(2, 1, 2)
#: The initial value of a latent.
NEW = -1.0


def add_extras(buffer: Any) -> Any:
    return buffer.with_extras(latent=np.full(3, NEW), uses=0)


def pace(rows: int) -> ReplaySchedule:
    return ReplaySchedule(4, 1, 2, 6 * rows)


KINDS: dict[str, Callable[[int], Any]] = {
    "uniform": lambda rows: add_extras(ReplayBuffer(7 * rows, pace(rows), 2, 0.9, Seeds(7), together=32)),
    "prioritized": lambda rows: add_extras(PrioritizedReplay(7 * rows, pace(rows), 2, 0.9, Seeds(7))),
    "sampled": lambda rows: add_extras(SampledReplay(7 * rows, pace(rows), 2, 0.9, Seeds(7))),
    "sequences": lambda rows: add_extras(SequenceReplay(SEQUENCES, 7 * rows, pace(rows), 2, 0.9, Seeds(7))),
    "uniform sequences": lambda rows: add_extras(
        SequenceReplay(SEQUENCES, 7 * rows, pace(rows), 2, 0.9, Seeds(7), priority=Priority(alpha=0.0))
    ),
    "sources": lambda rows: SourcesReplay(add_extras(ReplayBuffer(14 * rows, pace(rows), 2, 0.9, Seeds(7))), 2),
    "sequences of sources": lambda rows: SourcesReplay(
        add_extras(SequenceReplay(SEQUENCES, 14 * rows, pace(rows), 2, 0.9, Seeds(7))), 2
    ),
}


def steps(story: Story) -> Iterator[tuple[int, Step]]:
    """Yield steps with alternating sources."""
    for time, step in enumerate(story.steps()):
        yield time % 2, step


class Reference:
    """The extras written last for each observation; each step has its own observation."""

    def __init__(self) -> None:
        self.latents: dict[float, list[float]] = {}
        self.uses: dict[float, int] = {}

    def check(self, batch: Transitions) -> None:
        for obs, latent, uses in zip(*(rows.tolist() for rows in self.rows(batch)), strict=True):
            assert latent == self.latents.get(obs, [NEW] * 3)
            assert uses == self.uses.get(obs, 0)

    def rows(self, batch: Transitions) -> tuple[torch.Tensor, ...]:
        return batch.obs[:, 0], batch.extras["latent"], batch.extras["uses"]

    def write(self, batch: Transitions, update: int) -> Result:
        obs, latent, uses = self.rows(batch)
        extras = {"latent": latent + update + obs.unsqueeze(1), "uses": uses + 1}
        self.latents |= dict(zip(obs.tolist(), extras["latent"].tolist(), strict=True))
        self.uses |= dict(zip(obs.tolist(), extras["uses"].tolist(), strict=True))
        return Result({}, batch.index.double() % 5, extras)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(stories(st.integers(8, 30)), st.integers(0, 29))
def test_batches_have_the_extras_written_last(kind: str, story: Story, move: int) -> None:
    """Also after a resume, between batches of one step, and after the ring wraps around: new steps get new values."""
    stay, moved = (KINDS[kind](story.num_envs) for _ in range(2))
    ours, theirs = Reference(), Reference()
    for time, (source, step) in enumerate(steps(story)):
        if time == move:
            state = save_and_load(moved.state_dict())
            moved = KINDS[kind](story.num_envs)
            moved.load_state_dict(state)
        for buffer in (stay, moved):
            buffer.add(step, source)
        for update, pair in enumerate(zip(stay.batches(CLOCK), moved.batches(CLOCK), strict=True)):
            for buffer, reference, batch in zip((stay, moved), (ours, theirs), pair, strict=True):
                reference.check(batch)
                buffer.feedback(batch, reference.write(batch, update))
    assert_same(stay.state_dict(), moved.state_dict())


def test_device_replay_stores_extras() -> None:
    buffer = DeviceReplay(20, pace(2), 1, 0.9, Seeds(7), torch.device("cpu"), "cpu").with_extras(latent=np.zeros(2))
    reference = dict[float, list[float]]()
    for time in range(40):
        obs = torch.tensor([[2.0 * time], [2.0 * time + 1]])
        never = torch.zeros(2, dtype=torch.bool)
        reward = torch.ones(2)
        buffer.add(Step(obs, reward, reward, obs, never, never, never, ~never, False, {}, None))  # type: ignore[arg-type]
        for batch in buffer.batches(CLOCK):
            found = dict(zip(batch.obs[:, 0].tolist(), batch.extras["latent"].tolist(), strict=True))
            assert found == {number: reference.get(number, [0.0, 0.0]) for number in found}
            new = batch.obs + torch.tensor([0.25, time])
            reference |= dict(zip(batch.obs[:, 0].tolist(), new.tolist(), strict=True))
            buffer.feedback(batch, Result({}, extras={"latent": new}))
    assert len(reference) > 60


def test_wrong_extras_raise() -> None:
    buffer = KINDS["uniform"](1)
    ones = np.ones(1, np.float32)
    flag = np.zeros(1, bool)
    step = Step(ones[:, None], ones, ones, ones[:, None], flag, flag, flag, ~flag, False, {}, None)
    for _ in range(6):
        buffer.add(step)
    batch = next(iter(buffer.batches(CLOCK)))
    for extras, sentence in (
        ({"laten": batch.reward}, r"returned extras\['laten'\], which its buffer does not have; did you mean 'latent'"),
        ({"latent": batch.reward}, r"extras\['latent'\] of shape \(4,\), and the batch needs \(4, 3\)"),
    ):
        with pytest.raises(PluginError, match=sentence):
            buffer.feedback(batch, Result({}, extras=extras))
    with pytest.raises(PluginError, match="steps already have an extra 'uses', from the agent or from a signal"):
        KINDS["uniform"](1).add(replace(step, extras={"uses": ones}))
    with pytest.raises(PluginError, match="'is_first' is set by the buffer"):
        buffer.with_extras(is_first=0.0)
