"""Batches have the same bits for all stores and devices."""

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
from rlplug_core.buffers.storage import copy_together
from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, Step, tree_map
from tests.core.buffers.test_frames import Film, film_of, plain

CLOCK = Clock(1)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
STORES_AND_DEVICES = [
    pytest.param(store, device, marks=CUDA if "cuda" in (store, device) else ())
    for store in ("memory", "disk", "cuda")
    for device in ("cpu", "cuda")
]


def buffer_for(kind: str, store: str = "memory", device: str = "cpu") -> ReplayBuffer:
    """Make a replay with batches so large that a copy takes a while."""
    common = (400, ReplaySchedule(4096, 100, 2, 100), 3, 0.9, Seeds(7), torch.device(device))
    return PrioritizedReplay(*common, store=store) if kind == "prioritized" else ReplayBuffer(*common, store=store)


def steps(kind: str) -> Iterator[Step]:
    film = film_of(300, {30, 31, 177}, Film(4, 3, "any", 0.0))
    return film if kind == "stacked" else map(plain, film)


@pytest.mark.parametrize(("store", "device"), STORES_AND_DEVICES)
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "stacked"])
def test_batches_are_equal_for_all_stores_and_devices(kind: str, store: str, device: str) -> None:
    buffers = buffer_for(kind), buffer_for(kind, store, device)
    for step in steps(kind):
        for buffer in buffers:
            buffer.add(step)
        for pair in zip(*(buffer.batches(CLOCK) for buffer in buffers), strict=True):
            assert_equal(*pair, device)
            for buffer, batch in zip(buffers, pair, strict=True):
                buffer.feedback(batch, Result({}, batch.reward.abs() + batch.index % 5))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("kind", ["uniform", "stacked"])
@pytest.mark.parametrize("store", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_device_stores_integers_of_any_width(kind: str, dtype: type[Any], store: str) -> None:
    """Torch can assign rows of few unsigned types, and the ends of episodes are assigned rows."""
    memory = buffer_for(kind)
    on_device = buffer_for(kind, store)
    for step in steps(kind):
        wide = replace(step, obs=step.obs.astype(dtype), next_obs=step.next_obs.astype(dtype))
        memory.add(wide)
        on_device.add(wide)
    expected, found = (buffer.gather(np.arange(300, 500)) for buffer in (memory, on_device))
    assert found.obs.dtype == getattr(torch, np.dtype(dtype).name)
    assert torch.equal(expected.obs, found.obs)
    assert torch.equal(expected.next_obs, found.next_obs)


def assert_equal(expected: Transitions, batch: Transitions, device: str) -> None:
    """Compare first the field that was copied last: it would show an unfinished copy."""
    for name in ("next_obs", "obs", "index", "action", "reward", "discount", "weight", "counts"):
        found = getattr(batch, name)
        assert found.device.type == device
        assert torch.equal(found.cpu(), getattr(expected, name)), name


@pytest.mark.parametrize("store", ["memory", "disk", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("kind", ["uniform", "stacked"])
def test_resumed_replay_keeps_its_store(kind: str, store: str) -> None:
    """A resume does not read observations on disk into memory."""
    buffer, loaded = buffer_for(kind, store), buffer_for(kind, store)
    for step in steps(kind):
        buffer.add(step)
    loaded.load_state_dict(buffer.state_dict())
    for replay in (buffer, loaded):
        assert replay.data is not None
        tree_map(lambda part: check_store(part.frames if kind == "stacked" else part.array, store), replay.data.obs)
    assert torch.equal(loaded.gather(np.arange(300, 500)).obs, buffer.gather(np.arange(300, 500)).obs)


def check_store(stored: Any, store: str) -> None:
    if store == "cuda":
        assert stored.device.type == "cuda"
    else:
        assert (type(base_of(stored)).__name__ == "mmap") is (store == "disk")


def base_of(array: Any) -> Any:
    """Return the owner of an array's memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_observations_can_have_an_empty_part(store: str) -> None:
    buffer = ReplayBuffer(400, ReplaySchedule(8, 10, 2, 100), 1, 0.9, Seeds(7), store=store)  # type: ignore[arg-type]
    for step in steps("uniform"):
        empty = np.zeros((len(step.valid), 0), np.float32)
        obs = {"some": step.obs, "none": empty}
        after = {"some": step.next_obs, "none": empty}
        buffer.add(replace(step, obs=obs, next_obs=after))
        for batch in buffer.batches(CLOCK):
            assert batch.obs["none"].shape == batch.next_obs["none"].shape == (8, 0)
    assert buffer.due_batches == 0


def test_at_once_copies_arrays_of_any_layout() -> None:
    """Arrays of any width, transposed, sliced or empty."""
    numbers = np.arange(24).reshape(4, 6)
    arrays = [
        numbers.astype(np.uint8)[:3], numbers.T.astype(np.float32), numbers > 5, numbers[::2, 1:].astype(np.int16),
        numbers[:0].astype(np.float64), numbers.astype(np.uint32)[:, 0],
    ]  # fmt: skip
    for array, tensor in zip(arrays, copy_together(arrays, torch.device("cpu")), strict=True):
        assert tensor.numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensor.numpy(), array)
