"""Batches of arrays behave like batches of tensors; a read makes the tensor."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Batch, Samples, Transitions, from_arrays
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.array_batches import HOLDERS, observations
from rlplug_core.fast.losses import _to_fast
from rlplug_core.fast.metrics import Metrics
from rlplug_core.types import tree_map


def arrays(rows: int = 7) -> list[Any]:
    rng = np.random.default_rng(0)
    weight = np.ones(rows, np.float32)
    weight[3] = 0
    obs = {"a": rng.standard_normal((rows, 2), np.float32), "b": rng.integers(9, size=rows)}
    estimates = rng.standard_normal((2, rows), np.float32)
    return [weight, None, obs, rng.integers(2, size=rows), *estimates, {"log_prob": weight * 2, "none": weight}]


def both() -> tuple[Samples, Samples]:
    parts = arrays()
    plain = Samples(*(tree_map(torch.from_numpy, part) for part in parts))
    held = from_arrays(Samples, parts)
    assert type(held) in HOLDERS
    return held, plain


def assert_equal(batch: Batch, expected: Batch) -> None:
    for name in (each.name for each in fields(expected)):
        theirs, ours = getattr(expected, name), getattr(batch, name)
        tree_map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), theirs, ours)
        assert (theirs is None) == (ours is None)


def test_fields_are_tensors_on_the_same_memory() -> None:
    held, plain = both()
    array: Any = observations(held)["a"]
    assert isinstance(array, np.ndarray)
    assert isinstance(held, Samples)
    assert isinstance(held.obs["a"], Tensor)
    array[0, 0] = 5
    assert held.obs["a"][0, 0] == 5
    assert held.weight is held.weight
    held.obs["a"][0, 0] = plain.obs["a"][0, 0]
    assert_equal(held, plain)


@pytest.mark.parametrize("change", [copy.copy, copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_copies_hold_tensors(change: Any) -> None:
    held, plain = both()
    result = change(held)
    assert type(result) is Samples
    assert_equal(result, plain)


def test_loss_uses_replaced_fields() -> None:
    """A batch is converted once for all losses, and again after one of its fields changes."""
    held, _ = both()
    assert _to_fast(held) is _to_fast(held)
    held.target = held.target * 2
    np.testing.assert_array_equal(_to_fast(held).target.value, held.target.numpy())


def test_replaced_fields_equal_those_of_tensors() -> None:
    held, plain = both()
    double = replace(held, share=held.counts, target=held.target * 2)
    assert type(double) is Samples
    assert_equal(double, replace(plain, share=plain.counts, target=plain.target * 2))
    held.advantage = plain.advantage + 1
    assert torch.equal(held.advantage, plain.advantage + 1)
    assert_equal(
        held.take(torch.tensor([1, 3])), replace(plain, share=None, advantage=held.advantage).take(torch.tensor([1, 3]))
    )


@pytest.mark.parametrize("size", [2, 3, 7, 9])
def test_minibatches_equal_those_of_tensors(size: int) -> None:
    held, plain = both()
    parts = held.minibatches(size, np.random.default_rng(1)), plain.minibatches(size, np.random.default_rng(1))
    for pair in zip(*parts, strict=True):
        assert_equal(*pair)


def test_split_equals_that_of_tensors() -> None:
    parts = arrays(6)
    shaped = [*parts[:3], *parts[3:6], parts[4][:, None], np.arange(6), {}]
    share = torch.full((2,), 0.5)
    plain = Transitions(*(tree_map(torch.from_numpy, part) for part in shaped))
    for pair in zip(from_arrays(Transitions, shaped).split(2, share), plain.split(2, share), strict=True):
        assert_equal(*pair)


READERS: dict[str, Any] = {
    "unpacked": lambda m: {**m},
    "dict": dict,
    "updated": lambda m: {} | m,
    "or": lambda m: m | {},
    "item": lambda m: {"a": m["a"]},
    "get": lambda m: {"a": m.get("a")},
    "items": lambda m: dict(m.items()),
    "values": lambda m: {"a": next(iter(m.values()))},
    "copy": lambda m: m.copy(),
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "deepcopy": copy.deepcopy,
    "pop": lambda m: {"a": m.pop("a")},
}


def test_every_read_of_metrics_returns_tensors() -> None:
    faults = []
    for name, read in READERS.items():
        metrics: Any = Metrics({"a": FastTensor(np.float32(0.25))})  # type: ignore[arg-type,dict-item]
        assert dict.__getitem__(metrics, "a").__class__ is FastTensor
        value = read(metrics)["a"]
        if type(value) is not Tensor or value.item() != 0.25 or value.dtype is not torch.float32:
            faults.append((name, value))
    target: dict[str, Any] = {}
    target.update(Metrics({"a": FastTensor(np.float32(1))}))  # type: ignore[arg-type,dict-item]
    if type(target["a"]) is not Tensor:
        faults.append(("update", target))
    assert not faults


@pytest.mark.parametrize("read_before", [False, True])
def test_merge_does_not_convert_metrics(read_before: bool) -> None:
    metrics: Any = Metrics({"a": FastTensor(np.float32(1))})  # type: ignore[arg-type,dict-item]
    if read_before:
        assert metrics["a"].item() == 1
    metrics |= Metrics({"b": FastTensor(np.float32(2))})  # type: ignore[arg-type,dict-item]
    assert dict.__getitem__(metrics, "b").__class__ is FastTensor
    metrics |= {"c": torch.tensor(3.0)}
    assert {name: value.item() for name, value in metrics.items()} == {"a": 1, "b": 2, "c": 3}
    assert all(type(value) is Tensor for value in metrics.values())


def test_noise_and_to_do_not_convert_arrays() -> None:
    batch, plain = both()
    assert batch.to(torch.device("cpu")) is batch
    drawn = [each.standard_normal(np.random.default_rng(3), (2, 4)) for each in (batch, plain)]
    torch.testing.assert_close(*drawn, rtol=0, atol=0)
    weight, *_ = HOLDERS[type(batch)].read
    assert weight(batch).__class__ is np.ndarray
