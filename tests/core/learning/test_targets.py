"""Target networks: flat copies and soft updates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlplug_core.config.schedules import constant
from rlplug_core.learning.optimizer import Optimizer, flat_view
from rlplug_core.learning.targets import NoGradient, Target, target_network
from rlplug_core.learning.update_rules import Adam

pytestmark = pytest.mark.usefixtures("loops")


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def interpolate(target: nn.Module, online: nn.Module, tau: float) -> list[torch.Tensor]:
    """Update each parameter separately, in double precision."""
    pairs = zip(target.parameters(), online.parameters(), strict=True)
    return [(old.double() + tau * (new.double() - old.double())).detach() for old, new in pairs]


def check(target: nn.Module, expected: list[torch.Tensor]) -> None:
    for parameter, value in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.double(), value, rtol=1e-6, atol=1e-7)


def test_no_gradient_freezes_parameters_temporarily() -> None:
    """Inputs still have a gradient, and a frozen parameter remains frozen."""
    net = network(0)
    inputs = torch.ones(1, 3, requires_grad=True)
    net[0].bias.requires_grad = False
    with NoGradient(net):
        net(inputs).sum().backward()
        assert not any(parameter.requires_grad for parameter in net.parameters())
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in net.parameters())
    assert [parameter.requires_grad for parameter in net.parameters()] == [True, False, True, True]


def test_move_of_flat_parameters_equals_separate_moves() -> None:
    online = network(0)
    target = target_network(online)
    Optimizer(online.parameters(), name="network", rule=Adam(), learning_rate=constant(1e-3))
    follower = Target(online, target)
    follower.move()
    assert follower.views is not None
    assert [len(side) for side in follower.views] == [1, 1]
    for tau in (0.3, 0.005, 1.0):
        online.load_state_dict(network(1).state_dict())  # in place, as a checkpoint is loaded
        target.load_state_dict(network(2).state_dict())
        expected = interpolate(target, online, tau)
        follower.move(tau)
        check(target, expected)
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in target.parameters())


def test_move_updates_parameters_outside_flat_memory() -> None:
    online = network(0)
    target = target_network(online)
    online.load_state_dict(network(1).state_dict())
    expected = interpolate(target, online, 0.2)
    Target(online, target).move(0.2)
    check(target, expected)


def test_flat_view_joins_only_neighbors() -> None:
    flat = torch.arange(10.0)
    first = flat[2:5]
    second = flat[5:9].view(2, 2)
    (joined,) = flat_view([first, second])
    assert joined.tolist() == [2, 3, 4, 5, 6, 7, 8]
    joined.zero_()
    assert flat.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 9]
    for tensors in ([second, first], [first, flat[6:]], [first, torch.zeros(2)], [first, second.t()]):
        assert flat_view(tensors) is tensors
