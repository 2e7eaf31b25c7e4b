"""Target networks: flat copies, and how they follow."""

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


def moved(target: nn.Module, online: nn.Module, tau: float) -> list[torch.Tensor]:
    """Each parameter on its own, in double precision."""
    pairs = zip(target.parameters(), online.parameters(), strict=True)
    return [(old.double() + tau * (new.double() - old.double())).detach() for old, new in pairs]


def check(target: nn.Module, expected: list[torch.Tensor]) -> None:
    for parameter, value in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.double(), value, rtol=1e-6, atol=1e-7)


def test_frozen_parts_need_no_gradient_until_the_end() -> None:
    """What passes through it has one; a parameter that never wanted any stays so."""
    one, inputs = network(0), torch.ones(1, 3, requires_grad=True)
    one[0].bias.requires_grad = False
    with NoGradient(one):
        one(inputs).sum().backward()
        assert not any(parameter.requires_grad for parameter in one.parameters())
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in one.parameters())
    assert [parameter.requires_grad for parameter in one.parameters()] == [True, False, True, True]


def test_a_target_moves_what_lies_flat_as_each_parameter_alone() -> None:
    online = network(0)
    target = target_network(online)
    Optimizer(online.parameters(), name="network", rule=Adam(), learning_rate=constant(1e-3))
    follower = Target(online, target)
    follower.move()
    assert follower.pairs is not None
    assert [len(side) for side in follower.pairs] == [1, 1]
    for tau in (0.3, 0.005, 1.0):
        online.load_state_dict(network(1).state_dict())  # in place, as a checkpoint is loaded
        target.load_state_dict(network(2).state_dict())
        expected = moved(target, online, tau)
        follower.move(tau)
        check(target, expected)
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in target.parameters())


def test_parameters_outside_flat_memory_move_too() -> None:
    online = network(0)
    target = target_network(online)
    online.load_state_dict(network(1).state_dict())
    expected = moved(target, online, 0.2)
    Target(online, target).move(0.2)
    check(target, expected)


def test_only_neighbors_are_joined() -> None:
    flat = torch.arange(10.0)
    one, two = flat[2:5], flat[5:9].view(2, 2)
    (whole,) = flat_view([one, two])
    assert whole.tolist() == [2, 3, 4, 5, 6, 7, 8]
    whole.zero_()
    assert flat.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 9]
    for apart in ([two, one], [one, flat[6:]], [one, torch.zeros(2)], [one, two.t()]):
        assert flat_view(apart) is apart
