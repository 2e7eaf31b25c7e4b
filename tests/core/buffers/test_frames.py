"""A replay that stores each frame once returns the same bits as one that stores whole observations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.frames import TRIAL, Stacked
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.storage import Whole
from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Step, channels_last
from tests.core.fakes import assert_same, save_and_load
from tests.core.stories import Story, stories
from tests.reference.returns import Moment

CLOCK = Clock(1)
SIDE = 3


@dataclass(frozen=True)
class Film:
    """Images of a story: stacks of `frames` with `channels`, padding before the first frame, the probability `cuts`
    that an observation does not continue the last one, and the order of axes."""

    frames: int
    channels: int
    padding: str
    cuts: float
    form: str = "first"

    def stacks(self, story: Story) -> dict[int, Array]:
        """Draw an image for each observation of the story, by its number."""
        rng = np.random.default_rng(5)
        seen = dict[int, Array]()
        for row in story.moments:
            for moment in row:
                if moment.obs not in seen:
                    seen[moment.obs] = self.first_stack(rng)
                if moment.valid and rng.random() >= self.cuts:
                    newest = rng.integers(0, 256, (self.channels, SIDE, SIDE), np.uint8)
                    seen[moment.next_obs] = np.concatenate([seen[moment.obs][self.channels :], newest])
                else:
                    seen[moment.next_obs] = rng.integers(0, 256, seen[moment.obs].shape, np.uint8)
        return seen

    def first_stack(self, rng: np.random.Generator) -> Array:
        stack = rng.integers(0, 256, (self.frames, self.channels, SIDE, SIDE), np.uint8)
        if self.padding != "any":
            stack[:-1] = stack[-1] if self.padding == "repeat" else 0
        return stack.reshape(-1, SIDE, SIDE)

    def steps(self, story: Story) -> Iterator[Step]:
        """Yield steps of images; if all rows continue, obs is the array of the last next_obs, as in an actor."""
        seen = self.stacks(story)
        after = None
        for time, step in enumerate(story.steps()):
            obs = self.order_axes(np.stack([seen[row[time].obs] for row in story.moments]))
            if after is not None and np.array_equal(obs, after):
                obs = after
            after = self.order_axes(np.stack([seen[row[time].next_obs] for row in story.moments]))
            yield replace(step, obs=obs, next_obs=after)

    def order_axes(self, images: Array) -> Array:
        """Put the channels of stacks [N, k * C, H, W] first or last, or add an axis of frames before [H, W, C]."""
        if self.form == "frames":
            return np.moveaxis(images.reshape(len(images), self.frames, self.channels, SIDE, SIDE), 2, -1)
        return np.moveaxis(images, 1, -1) if self.form == "last" else images


FILMS = st.builds(
    Film,
    st.integers(2, 5),
    st.sampled_from([1, 3]),
    st.sampled_from(["repeat", "zero", "any"]),
    st.sampled_from([0.0, 0.0, 0.2, 0.8]),
    st.sampled_from(["first", "last", "frames"]),
)


def buffer_for(num_envs: int, slots: int, n: int, store: str = "memory") -> ReplayBuffer:
    return ReplayBuffer(slots * num_envs, ReplaySchedule(16, 1, 1, (n + 1) * num_envs), n, 0.9, Seeds(7), store=store)


def plain(step: Step) -> Step:
    """Convert images to a type that is stored whole."""
    return replace(step, obs=step.obs.astype(np.int32), next_obs=step.next_obs.astype(np.int32))


def assert_equal(batch: Transitions, expected: Transitions) -> None:
    for name in ("obs", "next_obs", "index", "reward", "discount", "action"):
        assert torch.equal(getattr(batch, name), getattr(expected, name)), name


@pytest.mark.parametrize("store", ["memory", "disk", "cpu"])
@settings(max_examples=60, deadline=None)
@given(stories(st.integers(2, 25)), FILMS, st.integers(1, 3), st.integers(0, 6), st.data())
def test_stacked_replay_equals_whole_replay(
    store: str, story: Story, film: Film, n: int, extra: int, data: st.DataObject
) -> None:
    """For starts and ends of episodes, cuts, the ring's end, several rows, windows, all stores, and a resume."""
    slots = n + 1 + extra
    move = data.draw(st.integers(0, len(story) - 1))
    frames = buffer_for(story.num_envs, slots, n, store)
    reference = buffer_for(story.num_envs, slots, n)
    for time, step in enumerate(film.steps(story)):
        if time == move:
            state = save_and_load(frames.state_dict())
            frames = buffer_for(story.num_envs, slots, n, store)
            frames.load_state_dict(state)
            assert_same(frames.state_dict(), state)
        frames.add(step)
        reference.add(plain(step))
        for pair in zip(frames.batches(CLOCK), reference.batches(CLOCK), strict=True):
            assert_equal(*pair)


def film_of(steps: int, ends: set[int], film: Film = Film(4, 1, "repeat", 0.0)) -> Iterator[Step]:
    """Make images of two rows with episodes that end at these times."""
    rows = []
    number = 0
    for _ in range(2):
        row = []
        for time in range(steps):
            over = time in ends
            row.append(Moment(number, 0.0, number + 1, over, False, True))
            number += 2 if over else 1
        rows.append(row)
        number += 10
    return film.steps(Story(rows))


@pytest.mark.parametrize("form", ["first", "last", "frames"])
def test_each_frame_of_a_stack_is_stored_once(form: str) -> None:
    buffer = buffer_for(2, 200, 1)
    for step in film_of(150, {30, 31, 77}, Film(4, 3, "repeat", 0.0, form)):
        buffer.add(step)
    assert buffer.data is not None
    store = buffer.data.obs
    assert type(store) is Stacked
    assert store.frames.size == 204 * 2 * 3 * SIDE * SIDE
    assert not store.starts  # a stack that repeats its first frame needs no other frames
    assert not store.apart
    assert len(store.finals) == 6
    store.forget(min(store.finals))
    assert len(store.finals) == 5


@pytest.mark.parametrize("shape", [(2, 3, SIDE, SIDE), (2, SIDE + 1, SIDE + 1, 3)], ids=["first", "last"])
def test_observations_that_stop_to_be_stacks_are_stored_whole(shape: tuple[int, ...]) -> None:
    """The first step looks like a stack, because its images are equal."""
    rng = np.random.default_rng(0)
    buffer, reference = buffer_for(2, 100, 1), buffer_for(2, 100, 1)
    obs = np.full(shape, 9, np.uint8)
    for time, step in enumerate(film_of(TRIAL + 20, {5, 40, 70})):
        after = obs if time == 0 else rng.integers(0, 256, shape, np.uint8)
        step = replace(step, obs=obs, next_obs=after)
        obs = after
        buffer.add(step)
        reference.add(plain(step))
        assert buffer.data is not None
        assert type(buffer.data.obs) is (Stacked if time + 1 < TRIAL else Whole)
        assert time or buffer.data.obs.last is channels_last(shape[1:])  # type: ignore[union-attr]
        for pair in zip(buffer.batches(CLOCK), reference.batches(CLOCK), strict=True):
            assert_equal(*pair)
    resumed = buffer_for(2, 100, 1)
    resumed.load_state_dict(save_and_load(buffer.state_dict()))
    assert_same(resumed.state_dict(), buffer.state_dict())


@pytest.mark.parametrize("kind", ["float", "color", "flat"])
def test_observations_that_are_not_frame_stacks_are_stored_whole(kind: str) -> None:
    step = next(film_of(1, set(), Film(3, 1, "any", 0.0)))
    obs, next_obs = {
        "float": (step.obs.astype(np.float32), step.next_obs.astype(np.float32)),
        "color": (step.obs, step.next_obs[:, ::-1].copy()),
        "flat": (step.obs.reshape(2, -1), step.next_obs.reshape(2, -1)),
    }[kind]
    buffer = buffer_for(2, 10, 1)
    buffer.add(replace(step, obs=obs, next_obs=next_obs))
    assert buffer.data is not None
    assert type(buffer.data.obs) is Whole


def test_restart_keeps_the_successor_of_the_newest_step() -> None:
    buffer, reference = buffer_for(2, 10, 1), buffer_for(2, 10, 1)
    for replay, convert in ((buffer, lambda step: step), (reference, plain)):
        for step in film_of(6, {2}):
            replay.add(convert(step))
        replay.restart()
        for step in film_of(3, set(), Film(4, 1, "zero", 0.0)):
            replay.add(convert(step))
    assert_equal(buffer.gather(np.arange(18)), reference.gather(np.arange(18)))


def test_a_million_frames_take_less_than_eight_gigabytes() -> None:
    """This is reserved address space; the system allocates pages when they are written."""
    never = np.zeros(8, bool)
    obs = np.zeros((8, 4, 84, 84), np.uint8)
    step = Step(obs, never.astype(int), np.zeros(8, np.float32), obs, never, never, never, ~never, False, {}, None)
    buffer = ReplayBuffer(1_000_000, ReplaySchedule(32, 4, 1, 1000), 1, 0.99, Seeds(0))
    buffer.add(step)
    data = buffer.data
    assert data is not None
    parts = [data.obs.frames, data.obs.age, data.action, data.reward, data.terminated, data.ended, data.valid]
    assert sum(part.nbytes for part in parts) < 8e9
