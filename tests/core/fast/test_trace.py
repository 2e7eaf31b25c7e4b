"""Recorded networks: outputs and gradients equal those of their forward."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rlplug_core.accelerator import network, room
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.hooks import hooks_of_parameters
from rlplug_core.fast.trace import PROGRAMS
from rlplug_core.nets.continuous import ActionCritic, ActionCritics, DeterministicPolicy
from rlplug_core.nets.distributional import CategoricalQ, ImplicitQ, QuantileQ
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Spec

pytestmark = pytest.mark.usefixtures("loops")
room()

SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 1, "Any-v0")
BOX = Spec(SPEC.obs, spaces.Box(-1, 1, (2,), np.float32), 1, "Any-v0")
CELLS = Spec(spaces.Discrete(5, start=2), spaces.Discrete(2), 1, "Any-v0")
NETS = {
    "tanh": Net(hidden=(8, 8)),
    "relu": Net(hidden=(7,), activation="relu"),
    "silu and layer norm": Net(hidden=(8,), activation="silu", layer_norm=True),
    "elu and scaled observations": Net(hidden=(6, 5), activation="elu", normalize_obs=True),
    "leaky relu": Net(hidden=(6,), activation="leaky_relu"),
}


class ThirdParty(nn.Module):
    """A third party's network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.LayerNorm(4), nn.Linear(4, 2), nn.Tanh())

    @network
    def forward(self, obs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(obs)
        return outputs


NETWORKS: dict[str, Callable[[Net], nn.Module]] = {
    "policy": lambda net: PolicyNetwork(SPEC, net),
    "policy over numbers": lambda net: PolicyNetwork(BOX, net),
    "critic": lambda net: Critic(SPEC, net),
    "critic with popart": lambda net: Critic(SPEC, net, popart=True),
    "one-hot observations": lambda net: Critic(CELLS, net),
    "deterministic policy": lambda net: DeterministicPolicy(BOX, net),
    "a third party's": lambda net: ThirdParty(),
}
VALUES: dict[str, Callable[..., QNetwork]] = {
    "values": lambda net, **more: QNetwork(SPEC, net, **more),
    "atoms": lambda net, **more: CategoricalQ(SPEC, net, low=-1.0, high=1.0, atoms=5, **more),
    "quantiles": lambda net, **more: QuantileQ(SPEC, net, atoms=5, **more),
}


def observations(module: nn.Module) -> Tensor:
    torch.manual_seed(1)
    one_hot = any(type(part).__name__ == "OneHot" for part in module.modules())
    return torch.randint(2, 7, (6,)) if one_hot else torch.randn(6, 3)


def compare(module: nn.Module, plain: Tensor, fast: Any) -> None:
    """Compare outputs and gradients of all parameters with autograd."""
    weight = torch.linspace(-1, 1, plain.numel()).reshape(plain.shape)
    (plain * weight).sum().backward()
    into = Gradients({parameter: np.zeros(parameter.shape, np.float32) for parameter in module.parameters()})
    (fast * FastTensor(weight.numpy())).sum().backward_into(into)
    np.testing.assert_allclose(fast.value, plain.detach().numpy(), rtol=1e-4, atol=1e-5)
    for parameter, array in into.items():
        expected = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-4)
        parameter.grad = None


@pytest.mark.parametrize("name", NETWORKS)
def test_recorded_networks_equal_forward(name: str) -> None:
    for net in NETS.values():
        check_network(NETWORKS[name](net))


def check_network(module: nn.Module) -> None:
    obs = observations(module)
    compare(module, module(obs), module(FastTensor(obs.numpy())))
    with torch.no_grad():
        result: Any = module(FastTensor(obs.numpy()))
    assert not result.requires_grad
    np.testing.assert_allclose(result.value, module(obs).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert len(PROGRAMS[id(module)][1]) == 1


@pytest.mark.parametrize("name", VALUES)
def test_recorded_q_networks_equal_forward(name: str) -> None:
    kinds: list[Any] = [None, "independent", "factorized"]
    for net, dueling, noisy in product(NETS.values(), (False, True), kinds):
        check_action_values(VALUES[name](net, dueling=dueling, noisy=noisy))


def check_action_values(module: QNetwork) -> None:
    obs: Any = observations(module)
    draws = module.noise(np.random.default_rng(0), 2)
    for noise in (*draws, None):
        held: Any = None if noise is None else FastTensor(noise.numpy())
        fast: Any = module.distribution(FastTensor(obs.numpy()), held)  # type: ignore[arg-type]
        compare(module, module.distribution(obs, noise), fast)


@pytest.mark.parametrize("atoms", [None, 4])
def test_recorded_critics_equal_forward(atoms: int | None) -> None:
    for net in NETS.values():
        check_critics(ActionCritics(lambda net=net: ActionCritic(BOX, net, atoms=atoms), 3), atoms)


def check_critics(module: ActionCritics, atoms: int | None) -> None:
    obs, action = torch.randn(6, 3), torch.randn(6, 2)
    arrays: Any = FastTensor(obs.numpy()), FastTensor(action.numpy())
    compare(module, module(obs, action), module(*arrays))
    compare(module, module.lowest(obs, action), module.lowest(*arrays))
    if atoms is not None:
        compare(module, module.pooled(obs, action), module.pooled(*arrays))


def test_critic_has_a_gradient_in_the_action() -> None:
    critic = ActionCritic(BOX, NETS["tanh"])
    action = torch.randn(6, 2, requires_grad=True)
    obs = torch.randn(6, 3)
    critic(obs, action).sum().backward()
    found: list[Any] = []

    def record(gradient: Any, into: Any) -> list[Any]:
        found.append(gradient)
        return []

    own: Any = FastTensor(action.detach().numpy(), (), record)
    fast: Any = critic(FastTensor(obs.numpy()), own)  # type: ignore[arg-type]
    fast.sum().backward_into(Gradients({}))
    assert action.grad is not None
    np.testing.assert_allclose(found[0], action.grad.numpy(), rtol=1e-4, atol=1e-6)


def why_not(module: nn.Module, *more: Any) -> str:
    with pytest.raises(NoFastPath) as refusal:
        module(FastTensor(np.ones((4, 3), np.float32)), *more)
    return str(refusal.value)


def test_no_fast_path_names_the_reason() -> None:
    assert why_not(Critic(SPEC, Net(activation="gelu"))) == "gelu"
    assert why_not(ImplicitQ(SPEC, Net())) == "a tensor that autograd computed"
    policy = PolicyNetwork(SPEC, Net())
    handle = policy.outputs.register_forward_hook(lambda *_: None)
    assert why_not(policy) == "a module with a hook"
    handle.remove()
    fast: Any = policy(FastTensor(np.ones((4, 3), np.float32)))  # type: ignore[arg-type]
    assert fast.requires_grad
    handle = policy.outputs.register_forward_hook(lambda *_: None)
    assert why_not(policy) == "a module with a hook"
    handle.remove()
    policy.outputs.bias = nn.Parameter(torch.zeros(2))
    assert why_not(policy) == "a network with parameters that were replaced"
    assert why_not(Critic(SPEC, Net()).double()) == "parameters that are not float32 on the CPU"
    wide = Spec(spaces.Discrete(65), SPEC.action, 1, "Any-v0")
    assert why_not(Critic(wide, Net())) == "OneHot of more than 64 features"


def test_hooks_of_all_modules_and_of_parameters_are_detected() -> None:
    critic = Critic(SPEC, Net())
    critic(FastTensor(np.ones((4, 3), np.float32)))  # type: ignore[arg-type]
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert why_not(critic) == "a module with a hook"
    handle.remove()
    check = hooks_of_parameters(list(critic.parameters()))
    assert not check()
    removable = next(critic.parameters()).register_hook(lambda gradient: None)
    assert check()
    assert check()
    removable.remove()
    assert not check()


def test_replaced_parameters_and_copies_use_their_own_values() -> None:
    critic = Critic(SPEC, Net())
    obs: Any = FastTensor(np.ones((4, 3), np.float32))
    critic(obs)
    other = copy.deepcopy(critic)
    with torch.no_grad():
        expected = other(torch.ones(4, 3))
        for parameter in critic.parameters():
            parameter.data = torch.zeros_like(parameter)
        ours, theirs = critic(obs), other(obs)
    assert not ours.value.any()  # type: ignore[attr-defined]
    np.testing.assert_allclose(theirs.value, expected.numpy(), atol=1e-6)  # type: ignore[attr-defined]


def test_gradients_of_two_calls_add_up() -> None:
    critic = Critic(SPEC, Net())
    obs = torch.randn(6, 3)
    fast: Any = FastTensor(obs.numpy())
    compare(critic, critic(obs) + critic(2 * obs), critic(fast) + critic(fast * 2))


class Watch(TorchFunctionMode):
    """Counts calls of `functional.linear`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        self.count += function is nn.functional.linear
        return function(*args, **(named or {}))


def test_function_modes_see_the_layers() -> None:
    """K-FAC records their inputs and outputs."""
    critic = Critic(SPEC, Net(hidden=(8, 8)))
    with Watch() as watch:
        critic(torch.ones(4, 3))
    assert watch.count == 3
