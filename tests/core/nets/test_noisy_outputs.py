"""Policies with noisy layers: each row under noise of its own is that row alone under it, whatever the actions are."""

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
    "discrete": spaces.Discrete(4), "multi-discrete": spaces.MultiDiscrete([2, 3]), "box": BOX,
    "dict": spaces.Dict({"choice": spaces.Discrete(3), "point": BOX, "levers": spaces.MultiBinary(2)}),
}  # fmt: skip


def policy(action: str = "discrete", kind: Kind = "factorized", **net: Any) -> PolicyNetwork:
    """A policy whose noise differs from weight to weight."""
    torch.manual_seed(0)
    made = PolicyNetwork(Spec(OBS, ACTIONS[action], 1, "Any-v0"), Net((5,), **net), noisy=kind, sigma=0.4)
    with torch.no_grad():
        for layer in made.modules():
            if isinstance(layer, NoisyLinear):
                layer.weight_sigma.copy_(torch.rand_like(layer.weight_sigma))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_noise_for_each_row_is_the_same_as_row_after_row(kind: Kind) -> None:
    torch.manual_seed(0)
    layer, generator = NoisyLinear(4, 3, kind, 0.7), np.random.default_rng(2)
    features, noise = torch.randn(6, 4), torch.from_numpy(np.stack([layer.draw(generator) for _ in range(6)]))
    each = torch.stack([layer(*pair) for pair in zip(features, noise, strict=True)])
    torch.testing.assert_close(layer(features, noise), each)
    together = torch.autograd.grad(layer(features, noise).square().sum(), list(layer.parameters()))
    for one, other in zip(together, torch.autograd.grad(each.square().sum(), list(layer.parameters())), strict=True):
        torch.testing.assert_close(one, other)


@for_each("kind", KINDS)
@for_each("action", ACTIONS)
def test_a_policys_rows_under_their_own_noise(action: str, kind: Kind) -> None:
    made, obs = policy(action, kind), torch.randn(6, 3)
    noise = torch.from_numpy(made.draw(np.arange(6)))
    together = made(obs, noise)
    assert together.shape == (6, made.head.size)
    for row in range(6):
        torch.testing.assert_close(together[row], made(obs[row : row + 1], noise[row])[0])
    assert not torch.allclose(together, made(obs))
    torch.testing.assert_close(made(obs, torch.zeros_like(noise)), made(obs))


@pytest.mark.parametrize("action", ACTIONS)
def test_every_noisy_layer_has_noise_of_its_own(action: str) -> None:
    """Wherever the noise is moved the outputs move."""
    made, obs = policy(action), torch.tensor([[0.3, -0.2, 0.9]])
    noise = torch.from_numpy(made.draw(np.array([3])))
    still = made(obs, noise)
    for place in range(noise.shape[1]):
        moved = noise.clone()
        moved[0, place] += 1
        assert not torch.equal(made(obs, moved), still), place


def test_a_number_is_one_noise_for_ever() -> None:
    made = policy()
    numbers = np.array([[5, 2**62], [2**62, 7]])
    noise = made.draw(numbers)
    assert noise.shape[:2] == (2, 2)
    assert noise.dtype == np.float32
    np.testing.assert_array_equal(noise[0, 1], noise[1, 0])
    np.testing.assert_array_equal(noise[1, 1], made.draw(np.array([7]))[0])
    assert len(np.unique(noise.reshape(4, -1), axis=0)) == 3


@pytest.mark.parametrize("action", ACTIONS)
def test_numpy_and_torch_agree_on_the_means(action: str) -> None:
    made, obs = policy(action), np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
    fast = fast_forward(made, "numpy")
    assert isinstance(fast, NumpyForward)
    np.testing.assert_allclose(fast(obs), made(torch.from_numpy(obs)).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_critic_take_the_noise_of_the_policy(shared: bool) -> None:
    torch.manual_seed(0)
    spec, obs = Spec(OBS, ACTIONS["discrete"], 1, "Any-v0"), torch.randn(4, 3)
    both = PolicyAndCritic(spec, Net((5,), shared=shared), noisy="factorized")
    noise = torch.from_numpy(both.policy.draw(np.arange(4)))
    outputs, value = both(obs, noise)
    torch.testing.assert_close(outputs, both.policy(obs, noise))
    torch.testing.assert_close(value, both(obs)[1])
    assert not torch.allclose(outputs, both(obs)[0])


def test_an_output_gain_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"noisy layers have the initial weights of their paper; leave net\.output_gain at none"
    ):
        policy(output_gain=0.5)
