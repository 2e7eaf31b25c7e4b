"""Flat optimizers against torch's own and against the formulas; what is shared, clipped, saved."""

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
from tests.core.fakes import assert_same, save_and_load
from tests.tables import for_each

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


@for_each("epsilon", [1e-5, 1e-8])
@for_each("clip", [None, 0.5])
def test_adam_is_torchs(epsilon: float, clip: float | None) -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer(
        ours.parameters(), name="network", rule=Adam(eps=epsilon), learning_rate=constant(1e-2), max_grad_norm=clip
    )
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=epsilon)
    for step in range(20):
        norm = optimizer.minimize(loss_of(ours, step), Clock(1))
        reference.zero_grad()
        loss_of(theirs, step).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        reference.step()
        assert float(norm) == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 0.999), st.floats(1e-4, 0.1), st.floats(1e-4, 0.1))
def test_rmsprop_is_the_papers(decay: float, epsilon: float, lr: float) -> None:
    """Mnih et al. (2016), equations 8 and 9: g = decay g + (1 - decay) d^2, theta -= lr d / sqrt(g + epsilon)."""
    ours, theirs = network(), network().double()
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
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


def test_rmsprop_without_epsilon_is_torchs() -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer(ours.parameters(), name="network", rule=RMSProp(0.99, 0.0), learning_rate=constant(1e-3))
    reference = torch.optim.RMSprop(theirs.parameters(), lr=1e-3, alpha=0.99, eps=0.0)
    for step in range(10):
        optimizer.minimize(loss_of(ours, step), Clock(1))
        reference.zero_grad()
        loss_of(theirs, step).backward()
        reference.step()
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_step_size_follows_progress_and_scale() -> None:
    seen: list[float] = []

    class Spy(RMSProp):
        def step(self, parameters: Tensor, gradient: Tensor, state: dict[str, Tensor], lr: float) -> None:
            seen.append(lr)

    net, clock = network(), Clock(100)
    optimizer = Optimizer(net.parameters(), name="network", rule=Spy(), learning_rate=linear(1.0, 0.0))
    for steps, scale in ((0, 1.0), (25, 1.0), (50, 0.5), (200, 1.0)):
        clock.steps, clock.scale = steps, scale
        optimizer.minimize(loss_of(net, 0), clock)
    assert seen == pytest.approx([1.0, 0.75, 0.25, 0.0])


def test_the_clip_follows_progress() -> None:
    """As the step size does: with gradient descent of step 1 the weights move as far as the clip allows."""
    net, clock = network(), Clock(100)
    optimizer = Optimizer(
        net.parameters(), name="network", rule=SGD(), learning_rate=constant(1.0), max_grad_norm=linear(0.5, 0.1)
    )
    for steps, age, expected in ((0, 0, 0.5), (50, 0, 0.3), (100, 50, 0.3), (200, 0, 0.1)):
        clock.steps, before = steps, optimizer.flat.clone()
        optimizer.minimize(100 * loss_of(net, 0), clock, age)
        assert float((optimizer.flat - before).norm()) == pytest.approx(expected, rel=1e-4)


class Twice:
    """The mean of two learners that are alike."""

    ranks = 2

    def __call__(self, gradient: Tensor) -> None:
        """It is what it was."""


def test_steps_of_all_learners_count_into_the_age_of_a_batch() -> None:
    net, clock = network(), Clock(100, 50)
    optimizer = Optimizer(net.parameters(), name="network", rule=SGD(), learning_rate=linear(1.0, 0.0), mean=Twice())
    optimizer.minimize(loss_of(net, 0), clock, age=20)
    assert optimizer.rate == pytest.approx(0.9)


def test_parameters_are_views_of_one_tensor_in_their_order() -> None:
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


def test_a_parameter_given_twice_counts_once_and_one_without_gradient_stays() -> None:
    net, idle = network(), nn.Parameter(torch.ones(3))
    optimizer = Optimizer(
        [*net.parameters(), *net.parameters(), idle], name="network", rule=RMSProp(), learning_rate=constant(0.1)
    )
    assert optimizer.flat.numel() == sum(tensor.numel() for tensor in weights(net)) + 3
    train(net, optimizer, range(3))
    assert (idle == 1).all()


def test_gradients_do_not_pile_up() -> None:
    net = network()
    optimizer = Optimizer(net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(0.0))
    norms = [float(optimizer.minimize(loss_of(net, 0), Clock(1))) for _ in range(3)]
    assert norms == [norms[0]] * 3


@pytest.mark.parametrize("rule", [Adam(), RMSProp()])
def test_stored_and_loaded_it_goes_on_the_same(rule: UpdateRule) -> None:
    net = network()
    optimizer = Optimizer(net.parameters(), name="network", rule=rule, learning_rate=linear(1e-2, 0.0))
    train(net, optimizer, range(5))
    other = network(1)
    resumed = Optimizer(other.parameters(), name="network", rule=rule, learning_rate=linear(1e-2, 0.0))
    other.load_state_dict(save_and_load(dict(net.state_dict())))
    resumed.load_state_dict(save_and_load(optimizer.state_dict()))
    for pair in ((net, optimizer), (other, resumed)):
        train(*pair, range(5, 10))
    assert_same(dict(net.state_dict()), dict(other.state_dict()))
    assert_same(optimizer.state_dict(), resumed.state_dict())


# Shared parameters.


def shared_pair(rule: UpdateRule, lr: Schedule) -> tuple[nn.Module, Optimizer, list[tuple[nn.Module, Optimizer]]]:
    """An owner and two that borrow, as in asynchronous workers."""
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


@pytest.mark.parametrize("rule", [Adam(), RMSProp()])
def test_one_that_borrows_does_what_one_alone_does(rule: UpdateRule) -> None:
    net, owner, [(worker, optimizer), _] = shared_pair(rule, constant(1e-2))
    alone = network()
    plain = Optimizer(alone.parameters(), name="network", rule=rule, learning_rate=constant(1e-2), max_grad_norm=0.5)
    assert_same(dict(worker.state_dict()), dict(alone.state_dict()))  # pulled when it was built
    train(worker, optimizer, range(5))
    train(alone, plain, range(5))
    assert_same(dict(worker.state_dict()), dict(alone.state_dict()))
    owner.pull()
    assert_same(dict(net.state_dict()), dict(alone.state_dict()))


def test_steps_of_all_add_up_and_each_sees_them_after_its_own() -> None:
    net, owner, workers = shared_pair(RMSProp(), constant(1e-2))
    (first, one), (second, two) = workers
    before = weights(second)
    train(first, one, range(1))
    assert_same(before, weights(second))  # not yet
    train(second, two, range(1, 2))
    owner.pull()
    assert_same(weights(net), weights(second))
    assert any((a != b).any() for a, b in zip(weights(first), weights(second), strict=True))
    one.pull()
    assert_same(weights(first), weights(second))


def test_shared_parts_are_neither_saved_nor_loaded() -> None:
    _, owner, [(_, worker), _] = shared_pair(Adam(), constant(1e-2))
    assert worker.state_dict() == {}
    state = copy.deepcopy(owner.state_dict())
    worker.load_state_dict({})
    assert_same(state, owner.state_dict())
    owner.load_state_dict({**state, "parameters": torch.full_like(owner.target, 3.0)})
    assert (worker.target == 3).all()
    assert (owner.flat == 3).all()


def test_pulling_leaves_every_generator_alone() -> None:
    _, owner, [(_, worker), _] = shared_pair(RMSProp(), constant(1e-2))
    before: list[Any] = [torch.get_rng_state(), np.random.get_state()[1]]
    worker.pull()
    owner.pull()
    assert_same(before, [torch.get_rng_state(), np.random.get_state()[1]])


def test_shared_state_names_what_is_shared() -> None:
    _, owner, _ = shared_pair(Adam(), constant(1e-2))
    shared = SharedState(owner.target, owner.state)
    assert set(shared.state) == {"mean", "square", "steps"}
    assert set(owner.state_dict()) == {"state", "parameters"}
