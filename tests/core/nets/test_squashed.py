"""The squashed Gaussian against numerical integration, and finite numbers at its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlplug_core.errors import UsageError
from rlplug_core.nets.heads import SquashedGaussian, head, squashed
from rlplug_core.nets.heads.tanh import log_tanh_derivative
from tests.tables import for_each

MEAN = st.floats(-2, 2)
LOG_STD = st.floats(-2, 0.5)
HEAD = SquashedGaussian((1,))


def log_density(mean: float, log_std: float) -> tuple[Tensor, Tensor]:
    """Return actions, dense around changes of the density, and its logarithm, in double precision."""
    action = torch.linspace(-18, 18, 40_001, dtype=torch.float64).tanh()
    outputs = torch.tensor([[mean, log_std]], dtype=torch.float64).expand(len(action), 2)
    return action, HEAD.log_prob(outputs, action[:, None])


def integral(value: Tensor, action: Tensor) -> float:
    return float(torch.trapezoid(value, action))


@settings(max_examples=40, deadline=None)
@given(MEAN, LOG_STD, st.floats(-0.99, 0.99))
def test_density_integrates_to_probabilities(mean: float, log_std: float, bound: float) -> None:
    """The whole integral is 1; up to a bound it is the probability that the Gaussian is below atanh(bound)."""
    action, log_value = log_density(mean, log_std)
    value = log_value.exp()
    assert integral(value, action) == pytest.approx(1, abs=1e-3)
    below = action <= bound
    standard = (math.atanh(bound) - mean) / math.exp(log_std)
    probability = 0.5 * (1 + math.erf(standard / math.sqrt(2)))
    assert integral(value[below], action[below]) == pytest.approx(probability, abs=5e-3)


@settings(max_examples=40, deadline=None)
@given(MEAN, LOG_STD, MEAN, LOG_STD)
@example(0.0, 0.5, 2.0, -2.0)  # the other density underflows to 0
def test_entropy_and_kl_equal_integrals(mean: float, log_std: float, other: float, spread: float) -> None:
    action, log_one = log_density(mean, log_std)
    _, log_two = log_density(other, spread)
    density = log_one.exp()
    mine, theirs = (torch.tensor([[*pair]], dtype=torch.float64) for pair in ((mean, log_std), (other, spread)))
    assert float(HEAD.entropy(mine)) == pytest.approx(integral(-density * log_one, action), abs=2e-2)
    divergence = integral(density * (log_one - log_two), action)
    assert float(HEAD.kl(mine, theirs)) == pytest.approx(divergence, rel=0.02, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1.5, 1.5, width=32), min_size=6, max_size=6), st.integers(0, 100))
def test_draw_returns_a_sample_and_its_log_probability(numbers: list[float], seed: int) -> None:
    """NumPy samples the same action, and `log_prob` agrees."""
    head = SquashedGaussian((3,))
    outputs = torch.tensor([numbers] * 4)
    noise = head.noise(np.random.default_rng(seed), (4,)).clip(-1.5, 1.5)
    action, log_prob = head.draw(outputs, torch.from_numpy(noise))
    np.testing.assert_allclose(head.sample(outputs.numpy(), noise), action, rtol=1e-5, atol=1e-6)
    before = (outputs[:, :3] + outputs[:, 3:].exp() * torch.from_numpy(noise)).double()
    exact = head.log_prob(outputs.double(), before.tanh())
    torch.testing.assert_close(log_prob, exact.float(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(head.host_log_prob(outputs.numpy(), action.numpy()), log_prob, rtol=0.05, atol=0.05)


@for_each("mean", [-60.0, -9.0, 0.0, 9.0, 60.0])
@for_each("log_std", [-40.0, 0.0, 40.0])
def test_values_and_gradients_are_finite_at_the_bounds(mean: float, log_std: float) -> None:
    """For actions that round to 1 and for deviations beyond their bounds."""
    outputs = torch.tensor([[mean, log_std]] * 3, requires_grad=True)
    action, log_prob = HEAD.draw(outputs, torch.tensor([[-4.0], [0.0], [4.0]]))
    bounds = HEAD.log_prob(outputs, torch.tensor([[-1.0], [0.5], [1.0]]))
    (action.sum() + log_prob.sum() + bounds.sum() * 1e-30 + HEAD.entropy(outputs).sum()).backward()
    for found in (action, log_prob, bounds, HEAD.entropy(outputs), outputs.grad):
        assert torch.isfinite(found).all()
    assert (action.abs() <= 1).all()


def test_log_slope_is_exact_for_large_values() -> None:
    """There 1 - tanh(x)² is 4 exp(-2 |x|), which the subtraction rounds to 0."""
    value = torch.tensor([-40.0, -10.0, 10.0, 40.0])
    torch.testing.assert_close(log_tanh_derivative(value), math.log(4) - 2 * value.abs())
    assert float(log_tanh_derivative(torch.zeros(()))) == pytest.approx(0, abs=1e-6)


def test_deviation_depends_on_the_state() -> None:
    head, layer = squashed(spaces.Box(-1, 1, (2, 3), np.float32), 7)
    given = layer(100 * torch.randn(4, 7))
    assert given.shape == (4, 12)
    assert len(given[:, 6].unique()) == 4
    action = head.sample(given.detach().numpy(), head.noise(np.random.default_rng(0), (4,)))
    assert action.shape == (4, 2, 3)
    assert head.mode(given.detach().numpy()).shape == (4, 2, 3)


def test_free_deviation_is_a_parameter() -> None:
    """Also in a product with a part that is not squashed."""
    both = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(2)})
    product, layer = head(both, 7, squash=True)
    given = layer(100 * torch.randn(5, 7)).detach()
    assert (given[:, 2:4] == 0).all()
    action = product.sample(given.numpy(), product.noise(np.random.default_rng(0), (5,)))
    assert (np.abs(action[:, :2]) < 1).all()
    box = HEAD.host_log_prob(given[:, [0, 2]].numpy(), action[:, :1]) + HEAD.host_log_prob(
        given[:, [1, 3]].numpy(), action[:, 1:2]
    )
    chosen = given[:, 4:].log_softmax(-1).gather(1, torch.from_numpy(action[:, 2:]).long()).squeeze(1)
    np.testing.assert_allclose(product.host_log_prob(given.numpy(), action), box + chosen.numpy(), rtol=1e-4)


@pytest.mark.parametrize("squash", [squashed, partial(head, squash=True)], ids=["squashed", "head"])
@pytest.mark.parametrize("space", [spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(-1, 3e38, (2,))])
def test_squashed_refuses_actions_without_bounds(space: spaces.Space[Any], squash: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"a tanh needs bounds, and the actions in .* have none; wrap"):
        squash(space, 4)
