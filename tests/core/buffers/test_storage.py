"""Wherever observations are stored and batches go, a batch is the same to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.batches import Transitions
from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.storage import at_once
from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Step, tree_map
from tests.core.buffers.test_frames import Film, film_of, plain

CLOCK = Clock(1)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
PLACES = [
    pytest.param(store, device, marks=CUDA if "cuda" in (store, device) else ())
    for store in ("memory", "disk", "cuda")
    for device in ("cpu", "cuda")
]


def buffer_for(kind: str, store: str = "memory", device: str = "cpu") -> ReplayBuffer:
    """Batches so large that a copy takes a while."""
    common = (400, ReplaySchedule(4096, 100, 2, 100), 3, 0.9, Seeds(7), torch.device(device))
    return PrioritizedReplay(*common, store=store) if kind == "prioritized" else ReplayBuffer(*common, store=store)


def steps(kind: str) -> Iterator[Step]:
    film = film_of(300, {30, 31, 177}, Film(4, 3, "any", 0.0))
    return film if kind == "stacked" else map(plain, film)


@pytest.mark.parametrize(("store", "device"), PLACES)
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "stacked"])
def test_a_batch_is_the_same_wherever_it_comes_from_and_goes(kind: str, store: str, device: str) -> None:
    here, there = buffer_for(kind), buffer_for(kind, store, device)
    for step in steps(kind):
        here.add(step)
        there.add(step)
        for one, other in zip(here.batches(CLOCK), there.batches(CLOCK), strict=True):
            assert_equal(one, other, device)
            for buffer, batch in ((here, one), (there, other)):
                buffer.feedback(batch, Result({}, batch.reward.abs() + batch.index % 5))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("kind", ["uniform", "stacked"])
@pytest.mark.parametrize("store", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_a_device_stores_whole_numbers_of_any_width(kind: str, dtype: type[Any], store: str) -> None:
    """Torch writes few kinds of unsigned numbers into rows; the ends of episodes are written so."""
    here, there = buffer_for(kind), buffer_for(kind, store)
    for step in steps(kind):
        wide = replace(step, obs=step.obs.astype(dtype), next_obs=step.next_obs.astype(dtype))
        here.add(wide)
        there.add(wide)
    one, other = (buffer.gather(np.arange(300, 500)) for buffer in (here, there))
    assert other.obs.dtype == getattr(torch, np.dtype(dtype).name)
    assert torch.equal(one.obs, other.obs)
    assert torch.equal(one.next_obs, other.next_obs)


def assert_equal(one: Transitions, other: Transitions, device: str) -> None:
    """What was copied last is looked at first: a copy that had not ended would show there."""
    for name in ("next_obs", "obs", "index", "action", "reward", "discount", "weight", "counts"):
        found = getattr(other, name)
        assert found.device.type == device
        assert torch.equal(found.cpu(), getattr(one, name)), name


@pytest.mark.parametrize("store", ["memory", "disk", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("kind", ["uniform", "stacked"])
def test_a_loaded_replay_lies_where_it_is_said_to(kind: str, store: str) -> None:
    """Observations that belong on disk are not brought into memory by a resume."""
    buffer, loaded = buffer_for(kind, store), buffer_for(kind, store)
    for step in steps(kind):
        buffer.add(step)
    loaded.load_state_dict(buffer.state_dict())
    for made in (buffer, loaded):
        assert made.data is not None
        tree_map(lambda part: check_place(part.frames if kind == "stacked" else part.array, store), made.data.obs)
    assert torch.equal(loaded.gather(np.arange(300, 500)).obs, buffer.gather(np.arange(300, 500)).obs)


def check_place(stored: Any, store: str) -> None:
    if store == "cuda":
        assert stored.device.type == "cuda"
    else:
        assert (type(base_of(stored)).__name__ == "mmap") is (store == "disk")


def base_of(array: Any) -> Any:
    """What holds an array's memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_observations_may_have_an_empty_part(store: str) -> None:
    buffer = ReplayBuffer(400, ReplaySchedule(8, 10, 2, 100), 1, 0.9, Seeds(7), store=store)  # type: ignore[arg-type]
    for step in steps("uniform"):
        empty = np.zeros((len(step.valid), 0), np.float32)
        obs, after = {"some": step.obs, "none": empty}, {"some": step.next_obs, "none": empty}
        buffer.add(replace(step, obs=obs, next_obs=after))
        for batch in buffer.batches(CLOCK):
            assert batch.obs["none"].shape == batch.next_obs["none"].shape == (8, 0)
    assert buffer.owed == 0


def test_arrays_arrive_as_they_were() -> None:
    """Of any width, turned or a part of another, and with no row at all."""
    numbers = np.arange(24).reshape(4, 6)
    arrays = [
        numbers.astype(np.uint8)[:3], numbers.T.astype(np.float32), numbers > 5, numbers[::2, 1:].astype(np.int16),
        numbers[:0].astype(np.float64), numbers.astype(np.uint32)[:, 0],
    ]  # fmt: skip
    for one, other in zip(arrays, at_once(arrays, torch.device("cpu")), strict=True):
        assert other.numpy().dtype == one.dtype
        np.testing.assert_array_equal(other.numpy(), one)
