"""Losses use the scale of the weights, and ignore rows of weight 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Samples, Transitions
from rlplug_core.context import Context
from rlplug_core.fast.array import from_tensor
from rlplug_core.learning.estimators import standardize
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from tests.core.fakes import Tiny, TinyConfig, TinyQ, TinyQConfig

pytestmark = pytest.mark.usefixtures("loops")

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10)), min_size=1, max_size=12)


def samples(weight: torch.Tensor, seed: int = 0) -> Samples:
    num_envs = len(weight)
    draws = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=draws)  # noqa: E731
    action = torch.randint(2, (num_envs,), generator=draws)
    return Samples(
        weight, None, normal(num_envs, 5), action, normal(num_envs), normal(num_envs), {"log_prob": normal(num_envs)}
    )


def transitions(weight: torch.Tensor, seed: int = 0) -> Transitions:
    s = samples(weight, seed)
    num_envs = len(weight)
    return Transitions(
        weight, None, s.obs, s.action, s.advantage, torch.full((num_envs,), 0.9), s.obs + 1, s.action, {}
    )


@given(WEIGHTS, st.integers(0, 1000))
def test_mean_uses_the_scale_of_the_weights(weights: list[float], seed: int) -> None:
    batch = samples(torch.tensor(weights), seed)
    expected = sum(w * float(x) for w, x in zip(weights, batch.target, strict=True)) / max(
        1, sum(w > 0 for w in weights)
    )
    assert float(batch.mean(batch.target)) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    doubled = replace(batch, weight=batch.weight * 2, share=None)
    assert float(doubled.mean(batch.target)) == pytest.approx(2 * expected, rel=1e-4, abs=1e-5)


def test_new_weights_reset_the_shares() -> None:
    batch = samples(torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="'share' must be specified"):
        replace(batch, weight=torch.tensor([1.0, 3.0]))
    other = replace(batch, weight=torch.tensor([1.0, 3.0]), share=None)
    assert other.counts.tolist() == [0.5, 1.5]
    assert batch.map(torch.clone).counts.tolist() == batch.counts.tolist() == [1.0, 0.0]


def test_batch_without_valid_rows_has_mean_zero() -> None:
    batch = samples(torch.zeros(3))
    assert batch.mean(batch.target) == 0
    assert torch.isfinite(standardize(batch.target, batch.weight)).all()


def test_take_makes_an_independent_batch() -> None:
    """The share is computed again: one valid row of two is the whole mean, not a quarter of it."""
    batch = samples(torch.tensor([1.0, 0.0, 2.0, 1.0])).take(torch.tensor([2, 1]))
    assert float(batch.mean(torch.tensor([3.0, 50.0]))) == pytest.approx(6.0)
    assert batch.obs.shape == (2, 5)
    assert batch.extras["log_prob"].shape == (2,)


def test_minibatches_cover_each_row_once_and_repeat_with_the_generator() -> None:
    batch = samples(torch.ones(9))
    orders = [
        torch.cat([part.target for part in batch.minibatches(3, np.random.default_rng(5))]).tolist() for _ in range(2)
    ]
    assert orders[0] == orders[1] != batch.target.tolist()
    assert sorted(orders[0]) == sorted(batch.target.tolist())
    assert next(batch.minibatches(9, np.random.default_rng(5))) is batch


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12), st.data())
def test_standardize_ignores_rows_of_weight_0(values: list[float], data: st.DataObject) -> None:
    used = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    value = torch.tensor(values)
    weight = torch.tensor(used, dtype=torch.float32) * 0.3
    result = standardize(value, weight)[weight > 0].double()
    in_numpy = standardize(from_tensor(value), weight).value
    kept = value[weight > 0].double()
    if len(kept) > 1 and kept.std() > 1e-3:
        for found in (result, in_numpy[weight.numpy() > 0]):
            np.testing.assert_allclose(found, (kept - kept.mean()) / kept.std(), rtol=1e-3, atol=1e-3)
    changed = torch.where(weight > 0, value, torch.tensor(1e6))
    np.testing.assert_array_equal(standardize(changed, weight)[weight > 0], standardize(value, weight)[weight > 0])


CASES = [(Tiny, TinyConfig(), samples), (TinyQ, TinyQConfig(), transitions)]
BOTH = pytest.mark.parametrize(("cls", "config", "make"), CASES, ids=["tiny", "tiny-q"])


def learner(cls: type[Algorithm[Any]], config: Any) -> Algorithm[Any]:
    return cls(Chain(1).spec, config, Context(Seeds(0)))


def gradient(algorithm: Algorithm[Any], batch: Any) -> list[float]:
    """Return the gradient that `minimize` would apply."""
    loss, _ = algorithm.loss(batch)
    loss.backward()
    flat = algorithm.optimizers[0].gradient.clone()
    algorithm.optimizers[0].gradient.zero_()
    return flat.tolist()


@pytest.mark.parametrize(
    ("cls", "config", "make"), [(Tiny, TinyConfig(), samples), (TinyQ, TinyQConfig(), transitions)]
)
@settings(max_examples=20, deadline=None)
@given(weights=WEIGHTS, seed=st.integers(0, 1000))
def test_rows_of_weight_0_change_no_gradient(cls: Any, config: Any, make: Any, weights: list[float], seed: int) -> None:
    """Other content in these rows, or their absence, gives the same gradient."""
    algorithm = learner(cls, config)
    weight = torch.tensor(weights)
    batch = make(weight, seed)
    expected = gradient(algorithm, batch)
    other = make(weight, seed + 1)
    mixed = replace(batch, share=None, obs=torch.where(weight[:, None] > 0, batch.obs, other.obs))
    np.testing.assert_array_equal(gradient(algorithm, mixed), expected)
    kept = gradient(algorithm, batch.take(torch.nonzero(weight > 0)[:, 0]))
    np.testing.assert_allclose(kept, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("cls", "config", "make"), [(Tiny, TinyConfig(), samples), (TinyQ, TinyQConfig(), transitions)]
)
def test_weight_scales_the_gradient(cls: Any, config: Any, make: Any) -> None:
    algorithm = learner(cls, config)
    once, twice = (gradient(algorithm, make(torch.full((6,), weight))) for weight in (1.0, 2.0))
    np.testing.assert_allclose(twice, np.multiply(once, 2), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_take_all_equals_take_of_each_part(size: int) -> None:
    rows = torch.arange(10.0)
    obs = {"a": rows.view(10, 1).repeat(1, 2), "b": {"c": rows.long()}}
    weight = torch.tensor([1, 0, 2, 0, 0, 0, 0.5, 1, 1, 0])
    batch = Samples(weight, None, obs, rows.long(), rows, -rows, {"log_prob": rows * 2})
    order = torch.randperm(10)
    parts = list(batch.parts(order, size))
    assert len(parts) == 10 // size
    for number, part in enumerate(parts):
        alone = batch.take(order[number * size : (number + 1) * size])
        for name in ("weight", "counts", "obs", "action", "advantage", "target", "extras"):
            torch.testing.assert_close(getattr(part, name), getattr(alone, name), rtol=0, atol=0)
