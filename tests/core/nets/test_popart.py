"""PopArt: the scale changes without changing values, and targets are normalized."""

from __future__ import annotations

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.fast.forward import NumpyForward
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import Adam
from rlplug_core.nets.forward import TorchForward, fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic
from rlplug_core.nets.popart import PopArt
from rlplug_core.types import Spec
from tests.core.test_batches import samples

SPEC = Spec(spaces.Box(-1, 1, (5,), np.float32), spaces.Discrete(2), 1, "here")


@given(st.integers(0, 1000), st.lists(st.sampled_from([1e-3, 1.0, 30.0, 1e5]), min_size=1, max_size=5))
def test_update_stats_preserves_values(seed: int, sizes: list[float]) -> None:
    torch.manual_seed(seed)
    layer = PopArt(6, rate=0.1)
    features = torch.randn(20, 6)
    with torch.no_grad():
        layer.linear.bias.fill_(0.3)
        wanted = values(layer, features)
        for size in sizes:
            before = layer.scale.clone()
            layer.update_stats(size * (torch.randn(9) + 3), torch.ones(9))
            assert not torch.equal(layer.scale, before)
            error = (values(layer, features) - wanted).abs().max()
            rounding = layer.shift.abs().max() + layer.scale.max() + wanted.abs().max()
            assert float(error) <= 2e-6 * float(rounding)
            wanted = values(layer, features)


def values(layer: PopArt, features: torch.Tensor) -> torch.Tensor:
    return layer(features) * layer.scale + layer.shift


def slow_moments(batches: list[torch.Tensor], rate: float) -> tuple[float, float]:
    """Average the first and second moments of all batches with exponential weights that add up to 1."""
    first = second = left = 0.0
    for batch in batches:
        keep = (1 - rate) ** len(batch)
        first, second = keep * first, keep * second
        left = keep * left + (1 - keep)
        first += (1 - keep) * float(batch.double().mean())
        second += (1 - keep) * float(batch.double().square().mean())
    return first / left, second / left - (first / left) ** 2


@given(st.integers(0, 1000), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.sampled_from([0.01, 0.3]))
def test_moments_are_unbiased_exponential_averages(seed: int, sizes: list[int], rate: float) -> None:
    torch.manual_seed(seed)
    batches = [100 * torch.randn(size) + 40 for size in sizes]
    layer = PopArt(2, rate)
    for batch in batches:
        weight = torch.cat([torch.ones(len(batch)), torch.zeros(2)])
        layer.update_stats(torch.cat([batch, torch.tensor([1e9, np.nan])]), weight)
    mean, variance = slow_moments(batches, rate)
    assert float(layer.mean) == pytest.approx(mean, rel=1e-6, abs=1e-4)
    assert float(layer.variance) == pytest.approx(variance, rel=1e-6, abs=1e-3)
    assert float(layer.scale) == pytest.approx(max(variance, 0) ** 0.5, rel=1e-5, abs=1e-3)


def test_update_with_weight_0_changes_nothing() -> None:
    layer = PopArt(3)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    layer.update_stats(torch.full((4,), 1e6), torch.zeros(4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_equal_targets_give_the_least_scale() -> None:
    layer = PopArt(3, least=0.01)
    layer.update_stats(torch.full((4,), 5.0), torch.ones(4))
    assert float(layer.scale) == pytest.approx(0.01)
    assert torch.isfinite(layer(torch.randn(4, 3))).all()


@pytest.mark.parametrize("popart", [False, True])
def test_gradient_is_that_of_the_normalized_error(popart: bool) -> None:
    """The gradient of ((V - target) / deviation)², with V in the unit of rewards."""
    torch.manual_seed(0)
    critic = Critic(SPEC, Net(hidden=(8,)), popart=popart)
    batch = samples(torch.ones(16))
    batch.target = batch.target * 50 + 700
    critic.update_stats(batch)
    normalized = critic.normalize(batch)
    loss = (critic.normalized(batch.obs) - normalized.target).square().mean()
    found = torch.autograd.grad(loss, list(critic.parameters()))
    deviation = batch.target.std(correction=0) if popart else torch.tensor(1.0)
    error = (critic(batch.obs) - batch.target) / deviation
    wanted = torch.autograd.grad(error.square().mean(), list(critic.parameters()))
    torch.testing.assert_close(normalized.advantage, batch.advantage / deviation)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_popart_does_not_change_initial_values() -> None:
    critics = []
    for popart in (False, True):
        torch.manual_seed(0)
        critics.append(Critic(SPEC, Net(hidden=(8,)), popart=popart))
    obs = torch.randn(7, 5)
    assert torch.equal(critics[0](obs), critics[1](obs))


def test_numpy_forward_and_optimizer_see_rescaled_weights() -> None:
    critic = Critic(SPEC, Net(hidden=(8,)), popart=True)
    optimizer = Optimizer(critic.parameters(), name="network", rule=Adam(), learning_rate=constant(0.1))
    plain = fast_forward(critic)
    obs = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    assert isinstance(plain, NumpyForward)
    for size in (1.0, 100.0, 3.0):
        optimizer.minimize(critic.normalized(torch.from_numpy(obs)).sum(), Clock(1))
        batch = samples(torch.ones(12))
        batch.target = batch.target * size
        critic.update_stats(batch)
        np.testing.assert_allclose(plain(obs), TorchForward(critic)(obs), rtol=1e-5, atol=1e-5)
        parameters = torch.cat([parameter.detach().reshape(-1) for parameter in critic.parameters()])
        assert torch.equal(optimizer.flat, parameters)
