"""DQN's loss and its gradient: against tables of action values by hand, and transition by transition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.testing.envs import Chain, Masked, Truncated, Vector
from tests.algos.losses import gradients, huber, q_loss, q_losses

TABLE = {"net.hidden": []}


def transitions(
    obs: Any, action: Any, reward: Any, discount: Any, next_obs: Any, weight: Tensor | None = None
) -> Transitions:
    """Return a batch from lists or tensors, with weights of 1 by default."""
    count = len(action)
    return Transitions(
        weight=torch.ones(count) if weight is None else weight,
        share=None,
        obs=obs,
        action=torch.as_tensor(action),
        reward=torch.as_tensor(reward),
        discount=torch.as_tensor(discount),
        next_obs=next_obs,
        index=torch.arange(count),
        extras={},
    )


def random_transitions(count: int, weight: Tensor | None = None) -> Transitions:
    """Return random transitions of Chain, with rewards on both sides of the Huber loss."""
    places = torch.eye(5)[torch.randint(0, 5, (2, count))]
    action = torch.randint(0, 2, (count,))
    reward = 3 * torch.randn(count)
    discount = 0.9 * torch.randint(0, 2, (count,))
    return transitions(places[0], action, reward, discount, places[1], weight)


def set_table(network: Any, values: list[list[float]]) -> None:
    """Make a network without hidden layers return `values[place][action]` for a one-hot place."""
    with torch.no_grad():
        network.advantage.linears[-1].weight.copy_(torch.tensor(values).T)
        network.advantage.linears[-1].bias.zero_()


def scatter(learner: Any) -> None:
    """Randomize the target network, so that it differs from the online one."""
    with torch.no_grad():
        for parameter in learner.target_network.parameters():
            parameter.copy_(torch.randn_like(parameter))


def reference(learner: Any, batch: Transitions) -> Tensor:
    """Return the loss transition by transition; the target is a plain number."""
    losses = []
    for i in range(len(batch.action)):
        online_next, target_next = (
            network(batch.next_obs[i : i + 1])[0].tolist() for network in (learner.q_network, learner.target_network)
        )
        chooser = online_next if learner.config.double else target_next
        best = chooser.index(max(chooser))
        target = float(batch.reward[i]) + float(batch.discount[i]) * target_next[best]
        value = learner.q_network(batch.obs[i : i + 1])[0, batch.action[i]]
        losses.append(batch.weight[i] * huber(value - target))
    return torch.stack(losses).sum() / max(1, int((batch.weight > 0).sum()))


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_loss_and_gradient_equal_the_reference(make_learner: Callable[..., Any], double: bool, dueling: bool) -> None:
    learner = make_learner("dqn", "Chain", double=double, dueling=dueling, **{"net.hidden": [16]})
    scatter(learner)
    batch = random_transitions(40, torch.tensor([1.0, 0.0, 0.25, 2.0] * 10))
    loss = q_loss(learner, batch)[0]
    expected = reference(learner, batch)
    torch.testing.assert_close(loss, expected)
    for got, wanted in zip(gradients(learner, loss), gradients(learner, expected), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("double", "following"), [(False, 5.0), (True, -1.0)])
def test_double_chooses_by_the_online_network(make_learner: Callable[..., Any], double: bool, following: float) -> None:
    """In place 1 the online values prefer action 0, which the target values at -1; its best is 5."""
    learner = make_learner("dqn", "Chain", double=double, **TABLE)
    set_table(learner.q_network, [[0.0, 0.0], [2.0, 1.0], *[[0.0, 0.0]] * 3])
    set_table(learner.target_network, [[0.0, 0.0], [-1.0, 5.0], *[[0.0, 0.0]] * 3])
    batch = transitions(torch.eye(5)[[0]], [0], [0.5], [0.9], torch.eye(5)[[1]])
    torch.testing.assert_close(q_loss(learner, batch)[0], huber(torch.tensor(0.5 + 0.9 * following)))


def test_dueling_subtracts_the_mean_advantage(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("dqn", "Chain", dueling=True, **TABLE)
    with torch.no_grad():
        learner.q_network.value.linears[-1].weight.fill_(10.0)
        learner.q_network.value.linears[-1].bias.zero_()
    set_table(learner.q_network, [[1.0, 4.0]] * 5)
    torch.testing.assert_close(learner.q_network(torch.eye(5)[[0]]), torch.tensor([[8.5, 11.5]]))


def test_gradient_of_one_transition_by_hand(make_learner: Callable[..., Any]) -> None:
    """In the square part of the Huber loss the gradient is Q - target, beyond it its sign; other entries get none."""
    for reward, wanted in ((0.5, -0.5), (7.0, -1.0), (-7.0, 1.0)):
        learner = make_learner("dqn", "Chain", **TABLE)
        set_table(learner.q_network, [[0.0, 0.0]] * 5)
        q_loss(learner, transitions(torch.eye(5)[[2]], [1], [reward], [0.0], torch.eye(5)[[3]]))[0].backward()
        expected = torch.zeros(2, 5)
        expected[1, 2] = wanted
        torch.testing.assert_close(learner.q_network.advantage.linears[-1].weight.grad, expected)


@pytest.mark.parametrize(("loss", "wanted"), [("huber", [0.125, 6.5]), ("mse", [0.25, 49.0])])
def test_loss_is_huber_or_squared(make_learner: Callable[..., Any], loss: str, wanted: list[float]) -> None:
    """Errors of 0.5 and 7; the priority is the error in both cases."""
    learner = make_learner("dqn", "Chain", loss=loss, **TABLE)
    set_table(learner.q_network, [[0.0, 0.0]] * 5)
    batch = transitions(torch.eye(5)[[2, 3]], [1, 0], [0.5, 7.0], [0.0, 0.0], torch.eye(5)[[3, 4]])
    losses, error = q_losses(learner, batch)
    torch.testing.assert_close(losses, torch.tensor(wanted))
    torch.testing.assert_close(error, torch.tensor([0.5, 7.0]))


def test_no_gradient_reaches_the_target(make_learner: Callable[..., Any]) -> None:
    """Nor, with `double`, the online values of the next observation."""
    learner = make_learner("dqn", "Chain", double=True, **TABLE)
    q_loss(learner, transitions(torch.eye(5)[[0]], [0], [5.0], [0.9], torch.eye(5)[[1]]))[0].backward()
    assert all(parameter.grad is None for parameter in learner.target_network.parameters())
    assert learner.q_network.advantage.linears[-1].weight.grad[:, 1].abs().sum() == 0
    assert learner.q_network.advantage.linears[-1].weight.grad[0, 0] != 0


@pytest.mark.parametrize("double", [False, True])
def test_forbidden_actions_are_not_successors(make_learner: Callable[..., Any], double: bool) -> None:
    """The mask in the next observation limits the maximum; it has no effect at the end of an episode."""
    learner = make_learner("dqn", "Masked", double=double, **TABLE)
    for network in (learner.q_network, learner.target_network):
        with torch.no_grad():
            network.advantage.linears[-1].weight.zero_()
            network.advantage.linears[-1].bias.copy_(torch.tensor([1.0, 2.0, 30.0]))
    obs = {"obs": torch.zeros(3, 3), "action_mask": torch.ones(3, 3, dtype=torch.int8)}
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.int8)
    batch = transitions(
        obs, [0, 0, 0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0], {"obs": torch.zeros(3, 3), "action_mask": mask}
    )
    errors = [1.0 - 0.5 * 2.0, 1.0 - 0.5 * 1.0, 1.0 - 0.0]
    expected = torch.stack([huber(torch.tensor(error)) for error in errors]).mean()
    torch.testing.assert_close(q_loss(learner, batch)[0], expected)


def test_only_legal_actions_are_explored_and_preferred(make_learner: Callable[..., Any]) -> None:
    """Masked raises at a forbidden action; both legal actions of each row are tried."""
    learner = make_learner("dqn", "Masked", exploration_initial_eps=1.0, exploration_final_eps=1.0)
    env = Masked(8)
    agent = learner.agent()
    now = env.reset(1)
    tried = set()
    agent.initial(8)
    for explore in [True] * 60 + [False] * 20:
        action = agent.act(now.obs, now.is_first, None, Clock(100), explore).action
        if explore:
            tried |= {(tuple(mask), int(a)) for mask, a in zip(now.obs["action_mask"], action, strict=True)}
        now = env.step(action)
    assert len(tried) == 6


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("env", "num_envs"), [(Chain, 1), (Chain, 3), (Truncated, 2)])
def test_batches_contain_n_step_transitions(
    make_learner: Callable[..., Any], env: type[Vector], num_envs: int, n_step: int
) -> None:
    """Compare the batches of DQN's buffer after real steps with a walk along the recorded steps of each row.

    Termination and truncation both end a window; only termination makes its discount 0.
    """
    gamma = 0.9
    learner = make_learner(
        "dqn",
        env.__name__,
        n_step=n_step,
        gamma=gamma,
        learning_starts=40,
        buffer_size=300,
        batch_size=64,
        exploration_final_eps=1.0,
    )
    actor = Actor(env(num_envs), learner, learner.agent(), learner.buffer(), Clock(10**6))
    actor.reset(0)
    record: list[Any] = []
    for _ in range(60):
        step = actor.step()
        actor.buffer.add(step)
        record.append(
            [
                np.copy(part)
                for part in (
                    step.obs,
                    step.action,
                    step.reward,
                    step.next_obs,
                    step.terminated,
                    step.truncated,
                )
            ]
        )
    batch, *_ = actor.buffer.batches(actor.clock)
    ends = set()
    for i, flat in enumerate(batch.index.tolist()):
        t, row = divmod(flat, num_envs)
        obs, action = record[t][0][row], record[t][1][row]
        total, factor = 0.0, 1.0
        for k in range(n_step):
            _, _, reward, next_obs, terminated, truncated = (part[row] for part in record[t + k])
            total = total + factor * float(reward)
            factor = factor * gamma
            if terminated or truncated:
                break
        ends.add("terminated" if terminated else "truncated" if truncated else "going on")
        np.testing.assert_array_equal(batch.obs[i], obs)
        assert batch.action[i] == action
        np.testing.assert_array_equal(batch.next_obs[i], next_obs)
        assert float(batch.reward[i]) == pytest.approx(total, rel=1e-6)
        assert float(batch.discount[i]) == pytest.approx(0.0 if terminated else factor, rel=1e-6)
    assert ends == {"going on", "terminated" if env is Chain else "truncated"}


def test_rows_of_weight_0_change_no_gradient(make_learner: Callable[..., Any]) -> None:
    """Neither their content nor their presence matters."""
    learner = make_learner("dqn", "Chain", double=True, dueling=True)
    scatter(learner)
    weight = torch.tensor([1.0, 0.0, 1.0, 2.0, 0.0, 0.5])
    batch = random_transitions(6, weight)
    garbage = batch.map(lambda tensor: tensor.clone())
    other = random_transitions(6)
    for name in ("obs", "action", "reward", "discount", "next_obs"):
        getattr(garbage, name)[weight == 0] = getattr(other, name)[weight == 0]
    garbage.reward[weight == 0] += 100
    kept = batch.take(torch.tensor([0, 2, 3, 5]))
    first, second, third = (gradients(learner, q_loss(learner, b)[0]) for b in (batch, garbage, kept))
    for a, b, c in zip(first, second, third, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)


def test_weights_keep_their_scale(make_learner: Callable[..., Any]) -> None:
    """Twice the importance weight is twice the gradient."""
    learner = make_learner("dqn", "Chain")
    once = random_transitions(5, torch.full((5,), 0.25))
    twice = replace(once, weight=once.weight * 2, share=None)
    for single, double in zip(
        gradients(learner, q_loss(learner, once)[0]), gradients(learner, q_loss(learner, twice)[0]), strict=True
    ):
        torch.testing.assert_close(double, 2 * single)


def test_target_is_copied_at_its_interval(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("dqn", "Chain", target_update_interval=3, learning_rate=1e-2, **TABLE)
    clock = Clock(100)
    copied = []
    for _ in range(7):
        learner.update(random_transitions(8), clock)
        clock.updates += 1
        pairs = zip(learner.q_network.parameters(), learner.target_network.parameters(), strict=True)
        copied.append(all(torch.equal(online, target) for online, target in pairs))
    assert copied == [False, False, True, False, False, True, False]


def test_epsilon_falls_and_stays(make_learner: Callable[..., Any]) -> None:
    """From 1 to the final value after its share of the run; the greedy action here is 1."""
    learner = make_learner(
        "dqn", "Chain", exploration_initial_eps=1.0, exploration_final_eps=0.1, exploration_fraction=0.5, **TABLE
    )
    set_table(learner.q_network, [[0.0, 1.0]] * 5)
    agent = learner.agent()
    rows = 2000
    agent.initial(rows)
    obs = np.zeros((rows, 5), np.float32)
    first = np.zeros(rows, bool)
    obs[:, 2] = 1
    for steps, epsilon in ((0, 1.0), (25, 0.55), (50, 0.1), (100, 0.1)):
        action = agent.act(obs, first, None, Clock(100, steps)).action
        assert (action == 0).mean() == pytest.approx(epsilon / 2, abs=0.04)
    assert (agent.act(obs, first, None, Clock(100), explore=False).action == 1).all()
