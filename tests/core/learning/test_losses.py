"""Losses on distributions against slow references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlplug_core.fast.array import from_tensor
from rlplug_core.learning.losses import (
    advantage_weight,
    categorical_projection,
    quantile_huber,
)
from rlplug_core.learning.temperature import expected_of
from tests.reference import distributional
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

NUMBERS = st.floats(-20, 20, width=32)
#: Some returns are exactly atoms, or ends of the support.
REWARDS = st.one_of(NUMBERS, st.integers(-12, 12).map(float), st.just(0.0))
DISCOUNTS = st.one_of(st.floats(0, 1, width=32), st.sampled_from([0.0, 0.5, 1.0]))


@st.composite
def supports(draw: st.DrawFn) -> Tensor:
    low = draw(st.integers(-10, 9))
    width = draw(st.integers(1, 20))
    return torch.linspace(low, low + width, draw(st.integers(2, 12)))


@settings(max_examples=200, deadline=None)
@given(st.data(), supports(), st.lists(st.tuples(REWARDS, DISCOUNTS), min_size=1, max_size=4))
def test_projection_equals_the_reference_and_keeps_mass(
    data: st.DataObject, support: Tensor, steps: list[tuple[float, float]]
) -> None:
    atoms = len(support)
    masses = st.lists(st.integers(0, 5), min_size=atoms, max_size=atoms).filter(any)
    probability = torch.tensor([data.draw(masses) for _ in steps], dtype=torch.float32)
    probability /= probability.sum(1, keepdim=True)
    reward, discount = torch.tensor(steps).unbind(1)
    projected = categorical_projection(probability, reward, discount, support)
    fast: Any = categorical_projection(*map(from_tensor, (probability, reward, discount)), support)  # type: ignore[arg-type]
    np.testing.assert_allclose(fast.value, projected, rtol=0, atol=1e-5)
    plain = categorical_projection(probability.requires_grad_(), reward, discount, support)  # all pairs of atoms
    torch.testing.assert_close(plain.detach(), projected, rtol=0, atol=1e-6)
    assert (projected >= 0).all()
    torch.testing.assert_close(projected.sum(1), torch.ones(len(steps)), rtol=0, atol=1e-5)
    for row, (gain, factor) in enumerate(steps):
        expected = distributional.projection(probability[row].tolist(), gain, factor, support.tolist())
        torch.testing.assert_close(projected[row], torch.tensor(expected), rtol=0, atol=1e-4)


@for_each("reward, wanted", [
        (-9.0, [1.0, 0, 0, 0, 0]), (-2.0, [1.0, 0, 0, 0, 0]), (0.0, [0, 0, 1.0, 0, 0]), (0.25, [0, 0, 0.75, 0.25, 0]),
        (2.0, [0, 0, 0, 0, 1.0]), (9.0, [0, 0, 0, 0, 1.0]),
    ])  # fmt: skip
def test_projection_of_terminal_steps_is_the_reward(reward: float, wanted: list[float]) -> None:
    support = torch.linspace(-2, 2, 5)
    probability = torch.full((1, 5), 0.2)
    projected = categorical_projection(probability, torch.tensor([reward]), torch.zeros(1), support)
    torch.testing.assert_close(projected, torch.tensor([wanted]))


def test_projection_keeps_nan() -> None:
    support = torch.linspace(-2, 2, 5)
    probability = torch.full((2, 5), 0.2)
    discount = torch.full((2,), 0.9)
    tensors = probability, torch.tensor([np.nan, 0.0]), discount
    fast: Any = categorical_projection(*map(from_tensor, tensors), support)  # type: ignore[arg-type]
    for found in (fast.value, categorical_projection(*tensors, support).numpy()):
        assert np.isnan(found[0]).any()
        assert np.isfinite(found[1]).all()


def test_projection_keeps_the_mean_within_the_support() -> None:
    torch.manual_seed(0)
    support = torch.linspace(-5, 5, 51)
    probability = torch.rand(64, 51).softmax(1)
    reward = torch.rand(64) - 0.5
    discount = 0.9 * torch.rand(64)
    projected = categorical_projection(probability, reward, discount, support)
    torch.testing.assert_close(projected @ support, reward + discount * (probability @ support), rtol=0, atol=1e-4)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.1, 1.0, 3.0]))
def test_quantile_huber_and_its_gradient_equal_the_reference(
    data: st.DataObject, num_envs: int, count: int, samples: int, kappa: float
) -> None:
    """The integers include ties and errors of exactly kappa."""
    numbers = st.one_of(st.integers(-5, 5).map(float), NUMBERS)

    def table(width: int) -> Tensor:
        row = st.lists(numbers, min_size=width, max_size=width)
        return torch.tensor([data.draw(row) for _ in range(num_envs)])

    quantiles = table(count).requires_grad_()
    targets = table(samples)
    shares = torch.rand(num_envs, count)
    loss = quantile_huber(quantiles, shares, targets, kappa)
    (gradient,) = torch.autograd.grad((loss * torch.arange(1, num_envs + 1)).sum(), quantiles)
    for row in range(num_envs):
        arguments = (quantiles[row].tolist(), shares[row].tolist(), targets[row].tolist(), kappa)
        assert loss[row].item() == pytest.approx(distributional.quantile_huber(*arguments), rel=1e-4, abs=1e-4)
        expected = [(row + 1) * gradient for gradient in distributional.quantile_gradients(*arguments)]
        assert gradient[row].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_quantile_huber_with_kappa_0_is_quantile_regression() -> None:
    """A schedule of kappa can end at 0: |share - 1{u < 0}| |u|."""
    quantiles = torch.randn(3, 4)
    targets = torch.randn(3, 5)
    shares = torch.rand(4)
    error = targets[:, None] - quantiles[:, :, None]
    wanted = (torch.where(error < 0, 1 - shares[:, None], shares[:, None]) * error.abs()).mean(2).sum(1)
    torch.testing.assert_close(quantile_huber(quantiles, shares, targets, 0.0), wanted, rtol=1e-4, atol=1e-5)


def test_quantile_huber_of_large_returns_keeps_its_precision() -> None:
    """With returns of thousands and errors below kappa, differences of sums of squares would lose precision."""
    torch.manual_seed(0)
    quantiles = (5000 + 0.3 * torch.randn(2, 50)).requires_grad_()
    targets = 5000 + 0.3 * torch.randn(2, 50)
    shares = torch.rand(50)
    loss = quantile_huber(quantiles, shares, targets)
    loss.sum().backward()
    assert quantiles.grad is not None
    for row in range(2):
        arguments = (quantiles[row].tolist(), shares.tolist(), targets[row].tolist(), 1.0)
        assert loss[row].item() == pytest.approx(distributional.quantile_huber(*arguments), rel=1e-3)
        assert quantiles.grad[row].tolist() == pytest.approx(distributional.quantile_gradients(*arguments), abs=1e-4)


def test_quantile_huber_has_no_gradient_in_targets() -> None:
    quantiles = torch.zeros(1, 3, requires_grad=True)
    targets = torch.ones(1, 3, requires_grad=True)
    quantile_huber(quantiles, torch.tensor([0.2, 0.5, 0.8]), targets).sum().backward()
    assert quantiles.grad is not None
    assert targets.grad is None


def test_quantile_regression_finds_quantiles() -> None:
    """The minimum for a known sample, up to the bias of kappa."""
    samples = torch.arange(1000).unsqueeze(0) / 1000
    shares = torch.tensor([0.1, 0.5, 0.9])
    quantiles = torch.full((1, 3), 0.5, requires_grad=True)
    optimizer = torch.optim.SGD([quantiles], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        quantile_huber(quantiles, shares, samples, kappa=0.01).sum().backward()
        optimizer.step()
    assert quantiles[0].tolist() == pytest.approx([0.1, 0.5, 0.9], abs=0.03)


@settings(max_examples=50, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=5), st.floats(0, 9, width=32), st.floats(0.5, 200, width=32))
def test_advantage_weight_equals_the_reference_without_overflow(
    advantages: list[float], beta: float, largest: float
) -> None:
    wanted = [np.exp(min(beta * advantage, np.log(largest))) for advantage in advantages]
    found = advantage_weight(torch.tensor(advantages, requires_grad=True), beta, largest)
    assert not found.requires_grad
    for weight in (found, advantage_weight(1e9 * torch.tensor(advantages).abs(), beta, largest)):
        assert torch.isfinite(weight).all()
        assert weight.max() <= largest * (1 + 1e-5)
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float32), rtol=1e-4, atol=1e-6)


def test_advantage_weight_with_largest_0_is_0() -> None:
    advantage = torch.tensor([-1.0, 0.0, 2.0])
    assert advantage_weight(advantage, 3.0, 0.0).tolist() == [0, 0, 0]


def test_expected_of_sums_over_actions() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    q = torch.randn(3, 4)
    log_probs = logits.log_softmax(-1)
    weights = log_probs.detach().exp().tolist()
    wanted = [
        [sum(p * each for p, each in zip(row, values, strict=True)) for row, values in zip(weights, table, strict=True)]
        for table in (log_probs.tolist(), q.tolist())
    ]
    for tensor, sums in zip(expected_of(log_probs, q), wanted, strict=True):
        torch.testing.assert_close(tensor, torch.tensor(sums))
