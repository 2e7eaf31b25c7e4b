"""Flat optimizers: schedules, clipping, flat memory and shared parameters."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, constant, linear
from rlplug_core.learning.optimizer import Optimizer, SharedState
from rlplug_core.learning.update_rules import SGD, Adam, RMSProp, UpdateRule
from tests.core.fakes import assert_same

pytestmark = pytest.mark.usefixtures("loops")


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss_of(net: nn.Module, step: int) -> Tensor:
    data = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
    outputs: Tensor = net(data)
    return (outputs - data[:, :2]).square().sum()


def weights(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def train(net: nn.Module, optimizer: Optimizer, steps: range, clock: Clock | None = None) -> None:
    for step in steps:
        optimizer.minimize(loss_of(net, step), clock or Clock(1))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 0.999), st.floats(1e-4, 0.1), st.floats(1e-4, 0.1))
def test_rmsprop_equals_the_paper(decay: float, epsilon: float, lr: float) -> None:
    """Mnih et al. (2016), equations 8 and 9: g = decay g + (1 - decay) d^2, theta -= lr d / sqrt(g + epsilon)."""
    ours = network()
    theirs = network().double()
    optimizer = Optimizer(ours.parameters(), name="network", rule=RMSProp(decay, epsilon), learning_rate=constant(lr))
    squares = [torch.zeros_like(parameter) for parameter in theirs.parameters()]
    for step in range(5):
        optimizer.minimize(loss_of(ours, step), Clock(1))
        data = torch.randn(5, 3, generator=torch.Generator().manual_seed(step)).double()
        loss = (theirs(data) - data[:, :2]).square().sum()
        gradients = torch.autograd.grad(loss, list(theirs.parameters()))
        with torch.no_grad():
            for parameter, square, gradient in zip(theirs.parameters(), squares, gradients, strict=True):
                square.copy_(decay * square + (1 - decay) * gradient**2)
                parameter -= lr * gradient / (square + epsilon).sqrt()
    for parameter, expected in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=1e-3, atol=1e-4)


def test_learning_rate_follows_progress_and_scale() -> None:
    rates: list[float] = []

    class Spy(RMSProp):
        def step(self, parameters: Tensor, gradient: Tensor, state: dict[str, Tensor], lr: float) -> None:
            rates.append(lr)

    net = network()
    clock = Clock(100)
    optimizer = Optimizer(net.parameters(), name="network", rule=Spy(), learning_rate=linear(1.0, 0.0))
    for steps, scale in ((0, 1.0), (25, 1.0), (50, 0.5), (200, 1.0)):
        clock.steps = steps
        clock.scale = scale
        optimizer.minimize(loss_of(net, 0), clock)
    assert rates == pytest.approx([1.0, 0.75, 0.25, 0.0])


def test_max_grad_norm_follows_progress() -> None:
    """With gradient descent of step size 1, weights move by the norm of the clipped gradient."""
    net = network()
    clock = Clock(100)
    optimizer = Optimizer(
        net.parameters(), name="network", rule=SGD(), learning_rate=constant(1.0), max_grad_norm=linear(0.5, 0.1)
    )
    for steps, age, expected in ((0, 0, 0.5), (50, 0, 0.3), (100, 50, 0.3), (200, 0, 0.1)):
        clock.steps = steps
        before = optimizer.flat.clone()
        optimizer.minimize(100 * loss_of(net, 0), clock, age)
        assert float((optimizer.flat - before).norm()) == pytest.approx(expected, rel=1e-4)


class EqualLearners:
    """The mean gradient of two learners with equal gradients."""

    ranks = 2

    def __call__(self, gradient: Tensor) -> None:
        """Leave the gradient unchanged."""


def test_age_of_a_batch_counts_steps_of_all_learners() -> None:
    net = network()
    clock = Clock(100, 50)
    optimizer = Optimizer(
        net.parameters(), name="network", rule=SGD(), learning_rate=linear(1.0, 0.0), mean=EqualLearners()
    )
    optimizer.minimize(loss_of(net, 0), clock, steps_ago=20)
    assert optimizer.rate == pytest.approx(0.9)


def test_parameters_are_views_of_one_tensor() -> None:
    net = network()
    before = torch.cat([tensor.reshape(-1) for tensor in weights(net)])
    optimizer = Optimizer(net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(1.0))
    torch.testing.assert_close(optimizer.flat, before, rtol=0, atol=0)
    optimizer.flat.fill_(0.25)
    assert all((tensor == 0.25).all() for tensor in weights(net))
    loss_of(net, 0).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in net.parameters() if parameter.grad is not None])
    assert (optimizer.gradient == expected).all()
    assert (expected != 0).any()


def test_optimizer_skips_duplicates_and_parameters_without_gradient() -> None:
    net = network()
    idle = nn.Parameter(torch.ones(3))
    optimizer = Optimizer(
        [*net.parameters(), *net.parameters(), idle], name="network", rule=RMSProp(), learning_rate=constant(0.1)
    )
    assert optimizer.flat.numel() == sum(tensor.numel() for tensor in weights(net)) + 3
    train(net, optimizer, range(3))
    assert (idle == 1).all()


def test_gradients_do_not_accumulate() -> None:
    net = network()
    optimizer = Optimizer(net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(0.0))
    norms = [float(optimizer.minimize(loss_of(net, 0), Clock(1))) for _ in range(3)]
    assert norms == [norms[0]] * 3


# Shared parameters.


def shared_pair(rule: UpdateRule, lr: Schedule) -> tuple[nn.Module, Optimizer, list[tuple[nn.Module, Optimizer]]]:
    """Make an owner and two borrowers of its parameters, as in asynchronous workers."""
    net = network()
    owner = Optimizer(net.parameters(), name="network", rule=rule, learning_rate=lr, max_grad_norm=0.5)
    shared = owner.share(lambda tensor: tensor)
    workers = []
    for _ in range(2):
        own = network(9)
        workers.append(
            (
                own,
                Optimizer(
                    own.parameters(), name="network", rule=rule, learning_rate=lr, max_grad_norm=0.5, shared=shared
                ),
            )
        )
    return net, owner, workers


def test_steps_of_workers_add_up() -> None:
    """A worker gets the steps of others after its own step."""
    net, owner, workers = shared_pair(RMSProp(), constant(1e-2))
    (first, optimizer_1), (second, optimizer_2) = workers
    before = weights(second)
    assert_same(before, weights(net))  # pulled in the constructor
    train(first, optimizer_1, range(1))
    assert_same(before, weights(second))
    train(second, optimizer_2, range(1, 2))
    owner.pull()
    assert_same(weights(net), weights(second))
    assert any((a != b).any() for a, b in zip(weights(first), weights(second), strict=True))
    optimizer_1.pull()
    assert_same(weights(first), weights(second))


def test_workers_do_not_save_or_load_shared_parameters() -> None:
    _, owner, [(_, worker), _] = shared_pair(Adam(), constant(1e-2))
    assert worker.state_dict() == {}
    state = copy.deepcopy(owner.state_dict())
    worker.load_state_dict({})
    assert_same(state, owner.state_dict())
    owner.load_state_dict({**state, "parameters": torch.full_like(owner.target, 3.0)})
    assert (worker.target == 3).all()
    assert (owner.flat == 3).all()


def test_pull_does_not_change_random_generators() -> None:
    _, owner, [(_, worker), _] = shared_pair(RMSProp(), constant(1e-2))
    before: list[Any] = [torch.get_rng_state(), np.random.get_state()[1]]
    worker.pull()
    owner.pull()
    assert_same(before, [torch.get_rng_state(), np.random.get_state()[1]])


def test_shared_state_has_parameters_and_state() -> None:
    _, owner, _ = shared_pair(Adam(), constant(1e-2))
    shared = SharedState(owner.target, owner.state)
    assert set(shared.state) == {"mean", "square", "steps"}
    assert set(owner.state_dict()) == {"state", "parameters"}
