"""Noisy layers: formulas number by number, initial weights, and draws."""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import FEW, NoisyLinear
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Spec
from tests.tables import for_each

Kind = Literal["independent", "factorized"]
KINDS: list[Kind] = ["independent", "factorized"]
SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 1, "Any-v0")


def randomize(layer: NoisyLinear) -> NoisyLinear:
    """Draw every parameter at random."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_factorized_noise_equals_the_formula(rows: int, learning: bool) -> None:
    """Equations 10 and 11: f(x) = sgn(x) sqrt(|x|), one number for each input and output."""
    torch.manual_seed(0)
    layer = randomize(NoisyLinear(3, 2, "factorized"))
    normal = np.random.default_rng(5).standard_normal(5, dtype=np.float32)
    f = [math.copysign(math.sqrt(abs(x)), x) for x in normal.tolist()]
    x = torch.randn(rows, 3)
    with torch.set_grad_enabled(learning):
        got = layer(x, torch.from_numpy(layer.draw(np.random.default_rng(5))))
    assert got.requires_grad == learning
    for row in range(rows):
        for j in range(2):
            wanted = layer.bias[j] + layer.bias_sigma[j] * f[3 + j]
            for i in range(3):
                wanted = wanted + (layer.weight[j, i] + layer.weight_sigma[j, i] * f[3 + j] * f[i]) * x[row, i]
            torch.testing.assert_close(got[row, j], wanted)


def test_independent_noise_equals_the_formula() -> None:
    torch.manual_seed(0)
    layer = randomize(NoisyLinear(3, 2, "independent"))
    noise = np.random.default_rng(5).standard_normal(8, dtype=np.float32).tolist()
    x = torch.randn(3)
    got = layer(x, torch.from_numpy(layer.draw(np.random.default_rng(5))))
    for j in range(2):
        wanted = layer.bias[j] + layer.bias_sigma[j] * noise[6 + j]
        for i in range(3):
            wanted = wanted + (layer.weight[j, i] + layer.weight_sigma[j, i] * noise[3 * j + i]) * x[i]
        torch.testing.assert_close(got[j], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_without_noise_uses_the_means(kind: Kind) -> None:
    layer = randomize(NoisyLinear(4, 3, kind))
    x = torch.randn(5, 4)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(layer(x, torch.zeros(layer.size)), layer(x))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_differ_and_average_to_the_means(kind: Kind) -> None:
    layer = randomize(NoisyLinear(4, 3, kind))
    x = torch.ones(4)
    generator = np.random.default_rng(0)
    outputs = torch.stack([layer(x, torch.from_numpy(layer.draw(generator))) for _ in range(4000)])
    assert len(torch.unique(outputs, dim=0)) == 4000
    spread = outputs.std(0) / math.sqrt(4000)
    assert ((outputs.mean(0) - layer(x)).abs() < 5 * spread).all()


@pytest.mark.parametrize(
    ("kind", "sigma", "weights", "bound"),
    [
        ("factorized", None, 0.5 / 8, 1 / 8),
        ("factorized", 0.1, 0.1 / 8, 1 / 8),
        ("independent", None, 0.017, math.sqrt(3 / 64)),
        ("independent", 0.1, 0.1, math.sqrt(3 / 64)),
    ],
)
def test_initial_parameters_equal_the_paper(kind: Kind, sigma: float | None, weights: float, bound: float) -> None:
    """Section 3.2: means uniform in ±1/√p or ±√(3/p), noise 0.5/√p or 0.017, for p = 64 inputs."""
    torch.manual_seed(0)
    layer = NoisyLinear(64, 50, kind, sigma)
    for noise in (layer.weight_sigma, layer.bias_sigma):
        torch.testing.assert_close(noise, torch.full_like(noise, weights))
    for mean in (layer.weight, layer.bias):
        assert 0.9 * bound < mean.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_parameters_get_gradients(kind: Kind) -> None:
    layer = NoisyLinear(4, 3, kind)
    generator = np.random.default_rng(0)
    layer(torch.ones(2, 4), torch.from_numpy(layer.draw(generator))).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@for_each("kind", KINDS)
@for_each("dueling", [False, True])
@for_each("hidden", [(), (8,), (8, 6)])
def test_network_gives_each_noisy_layer_its_own_noise(kind: Kind, dueling: bool, hidden: tuple[int, ...]) -> None:
    """Every number of the noise changes the values; shared layers have no noise."""
    torch.manual_seed(0)
    network: Any = QNetwork(SPEC, Net(hidden, "tanh"), dueling, kind)
    layers = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
    assert len(layers) == (1 + dueling) * min(2, 1 + len(hidden))
    noise = torch.from_numpy(network.draw(np.random.default_rng(0)))
    assert len(noise) == sum(layer.size for layer in layers)
    obs = torch.tensor([[0.3, -0.2, 0.9]])
    still = network(obs, noise)
    for index in range(0, len(noise), 3):
        moved = noise.clone()
        moved[index] += 1
        assert not torch.equal(network(obs, moved), still), index
    torch.testing.assert_close(network(obs, torch.zeros_like(noise)), network(obs))
