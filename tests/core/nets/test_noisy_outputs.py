"""Policies with noisy layers: noise of each row, for each kind of action."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.errors import UsageError
from rlplug_core.fast.forward import NumpyForward
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.policies import PolicyAndCritic, PolicyNetwork
from rlplug_core.types import Spec
from tests.tables import for_each

Kind = Literal["independent", "factorized"]
KINDS: list[Kind] = ["independent", "factorized"]
OBS = spaces.Box(-1, 1, (3,), np.float32)
BOX = spaces.Box(-1, 1, (2,), np.float32)
ACTIONS: dict[str, Any] = {
    "discrete": spaces.Discrete(4),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "box": BOX,
    "dict": spaces.Dict({"choice": spaces.Discrete(3), "point": BOX, "levers": spaces.MultiBinary(2)}),
}


def policy(action: str = "discrete", kind: Kind = "factorized", **net: Any) -> PolicyNetwork:
    """Make a policy with a different noise for each weight."""
    torch.manual_seed(0)
    network = PolicyNetwork(Spec(OBS, ACTIONS[action], 1, "Any-v0"), Net((5,), **net), noisy=kind, sigma=0.4)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, NoisyLinear):
                layer.weight_sigma.copy_(torch.rand_like(layer.weight_sigma))
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_layer_applies_noise_row_by_row(kind: Kind) -> None:
    torch.manual_seed(0)
    layer = NoisyLinear(4, 3, kind, 0.7)
    generator = np.random.default_rng(2)
    features = torch.randn(6, 4)
    noise = torch.from_numpy(np.stack([layer.draw(generator) for _ in range(6)]))
    each = torch.stack([layer(*pair) for pair in zip(features, noise, strict=True)])
    torch.testing.assert_close(layer(features, noise), each)
    together = torch.autograd.grad(layer(features, noise).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(together, torch.autograd.grad(each.square().sum(), list(layer.parameters())))


@for_each("kind", KINDS)
@for_each("action", ACTIONS)
def test_policy_applies_noise_row_by_row(action: str, kind: Kind) -> None:
    network = policy(action, kind)
    obs = torch.randn(6, 3)
    noise = torch.from_numpy(network.draw(np.arange(6)))
    together = network(obs, noise)
    assert together.shape == (6, network.head.size)
    for row in range(6):
        torch.testing.assert_close(together[row], network(obs[row : row + 1], noise[row])[0])
    assert not torch.allclose(together, network(obs))
    torch.testing.assert_close(network(obs, torch.zeros_like(noise)), network(obs))


@pytest.mark.parametrize("action", ACTIONS)
def test_every_number_of_the_noise_changes_the_outputs(action: str) -> None:
    network = policy(action)
    obs = torch.tensor([[0.3, -0.2, 0.9]])
    noise = torch.from_numpy(network.draw(np.array([3])))
    still = network(obs, noise)
    for index in range(noise.shape[1]):
        moved = noise.clone()
        moved[0, index] += 1
        assert not torch.equal(network(obs, moved), still), index


def test_equal_seeds_draw_equal_noise() -> None:
    network = policy()
    seeds = np.array([[5, 2**62], [2**62, 7]])
    noise = network.draw(seeds)
    assert noise.shape[:2] == (2, 2)
    assert noise.dtype == np.float32
    np.testing.assert_array_equal(noise[0, 1], noise[1, 0])
    np.testing.assert_array_equal(noise[1, 1], network.draw(np.array([7]))[0])
    assert len(np.unique(noise.reshape(4, -1), axis=0)) == 3


@pytest.mark.parametrize("action", ACTIONS)
def test_numpy_forward_uses_the_means(action: str) -> None:
    network = policy(action)
    obs = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
    fast = fast_forward(network, "numpy")
    assert isinstance(fast, NumpyForward)
    np.testing.assert_allclose(fast(obs), network(torch.from_numpy(obs)).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_critic_applies_noise_to_the_policy(shared: bool) -> None:
    torch.manual_seed(0)
    spec = Spec(OBS, ACTIONS["discrete"], 1, "Any-v0")
    obs = torch.randn(4, 3)
    both = PolicyAndCritic(spec, Net((5,), shared=shared), noisy="factorized")
    noise = torch.from_numpy(both.policy.draw(np.arange(4)))
    outputs, value = both(obs, noise)
    torch.testing.assert_close(outputs, both.policy(obs, noise))
    torch.testing.assert_close(value, both(obs)[1])
    assert not torch.allclose(outputs, both(obs)[0])


def test_noisy_layers_refuse_output_gain() -> None:
    with pytest.raises(
        UsageError, match=r"noisy layers have the initial weights of their paper; leave net\.output_gain at none"
    ):
        policy(output_gain=0.5)
