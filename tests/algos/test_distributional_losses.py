"""The losses of C51, QR-DQN and IQN against slow references, transition by transition, with all switches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.learning.losses import categorical_projection
from rlplug_core.nets.q_networks import next_distribution
from tests.algos.losses import gradients, q_draws, q_loss, q_losses, q_noise
from tests.algos.test_dqn_loss import random_transitions, scatter, transitions
from tests.reference import distributional

SWITCHES = {
    "plain": {},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "all": {"double": True, "dueling": True, "noisy": "factorized"},
}
OWN: dict[str, dict[str, Any]] = {
    "c51": {"n_atoms": 7, "v_min": -4.0, "v_max": 4.0},
    "qrdqn": {"n_quantiles": 5, "kappa": 0.7},
    "iqn": {"n_quantiles": 4, "n_target_quantiles": 3, "n_acting_quantiles": 6},
}
BOTH = pytest.mark.parametrize(
    ("name", "switches"), [(name, switches) for name in OWN for switches in SWITCHES], ids=lambda value: str(value)
)


@pytest.fixture
def algo(make_learner: Callable[..., Any], name: str, switches: str) -> Any:
    """Make a learner with a different target network."""
    one = make_learner(name, "Chain", **{"net.hidden": [12], **OWN[name], **SWITCHES[switches]})
    scatter(one)
    return one


def draw_batch(learner: Any, weight: Tensor | None = None, count: int = 16) -> Transitions:
    """Return transitions with all draws that `update` adds for the loss."""
    batch = random_transitions(count, weight)
    batch.extras = q_draws(learner, batch)
    return batch


def distribution(learner: Any, network: Any, obs: Tensor, use: int, shares: Tensor | None = None) -> Tensor:
    """Return the distribution [A, atoms] of one observation with the noise of this use."""
    noise = learner.draw_batch["noise"][use] if "noise" in learner.draw_batch else None
    arguments = (obs[None], noise) if shares is None else (obs[None], noise, shares[None])
    one: Tensor = network.distribution(*arguments)[0]
    return one


def best(learner: Any, obs: Tensor) -> int:
    """Return the action with the largest mean, with the network and noise that choose."""
    network, use = (learner.q_network, 2) if learner.config.double else (learner.target_network, 1)
    outputs = distribution(learner, network, obs, use)
    means = outputs.exp() @ network.support if hasattr(network, "support") else outputs.mean(1)
    return int(means.argmax())


def row_loss(learner: Any, name: str, batch: Transitions, i: int) -> tuple[float, float]:
    """Return the loss and error of one transition, by the slow references."""
    learner.draw_batch = batch.extras
    obs, following = batch.obs[i], batch.next_obs[i]
    ahead = (learner.target_network, following, 1)
    choice = best(learner, following)
    reward = float(batch.reward[i])
    discount = float(batch.discount[i])
    if name == "c51":
        logs = distribution(learner, learner.q_network, obs, 0)[batch.action[i]]
        probability = distribution(learner, *ahead)[choice].exp().tolist()
        target = distributional.projection(probability, reward, discount, learner.q_network.support.tolist())
        loss = -sum(p * float(log) for p, log in zip(target, logs, strict=True))
        entropy = -sum(p * float(torch.tensor(p).log()) for p in target if p > 0)
        return loss, loss - entropy
    online_shares = batch.extras["shares"][i] if name == "iqn" else None
    quantiles = distribution(learner, learner.q_network, obs, 0, online_shares)[batch.action[i]].tolist()
    target_shares = batch.extras["target_shares"][i] if name == "iqn" else None
    samples = [reward + discount * z for z in distribution(learner, *ahead, target_shares)[choice].tolist()]
    shares = [(k + 0.5) / len(quantiles) for k in range(len(quantiles))] if name == "qrdqn" else online_shares.tolist()
    loss = distributional.quantile_huber(quantiles, shares, samples, learner.config.kappa)
    return loss, abs(sum(samples) / len(samples) - sum(quantiles) / len(quantiles))


@BOTH
def test_loss_and_error_equal_references(algo: Any, name: str) -> None:
    batch = draw_batch(algo)
    with torch.no_grad():
        losses, errors = q_losses(algo, batch)
        for i in range(len(batch.action)):
            loss, error = row_loss(algo, name, batch, i)
            assert float(losses[i]) == pytest.approx(loss, rel=1e-3, abs=1e-4)
            assert float(errors[i]) == pytest.approx(error, rel=1e-3, abs=1e-4)


@BOTH
def test_rows_of_weight_0_change_no_gradient_and_weights_scale_it(algo: Any) -> None:
    weight = torch.tensor([1.0, 0.0, 0.25, 2.0] * 4)
    batch = draw_batch(algo, weight)
    garbage = batch.map(lambda tensor: tensor.clone())
    garbage.reward[weight == 0] += 100
    half = replace(batch, weight=0.5 * weight, share=None)
    first, second, third = (gradients(algo, q_loss(algo, one)[0]) for one in (batch, garbage, half))
    assert any(bool(gradient.abs().sum() > 0) for gradient in first)
    for a, b, c in zip(first, second, third, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(c, 0.5 * a)


@BOTH
def test_loss_draws_nothing_and_has_no_target_gradient(algo: Any) -> None:
    """The same batch gives the same loss; only trained parameters have gradients."""
    batch = draw_batch(algo)
    state = algo.generator.bit_generator.state
    first, again = q_loss(algo, batch)[0], q_loss(algo, batch)[0]
    assert torch.equal(first, again)
    assert algo.generator.bit_generator.state == state
    first.backward()
    assert all(parameter.grad is None for parameter in algo.target_network.parameters())
    moved = [name for name, parameter in algo.q_network.named_parameters() if not parameter.grad.abs().sum()]
    assert moved == []


@pytest.mark.parametrize("switches", ["plain", "double"])
@pytest.mark.parametrize("name", OWN)
def test_forbidden_actions_are_not_successors(make_learner: Callable[..., Any], name: str, switches: str) -> None:
    """Action 2 is best and forbidden; a batch without a preference for it has the same loss."""
    algo = make_learner(name, "Masked", **{"net.hidden": [], **OWN[name], **SWITCHES[switches]})
    seen = {"obs": torch.zeros(1, 3), "action_mask": torch.ones(1, 3, dtype=torch.int8)}
    ahead = {"obs": torch.zeros(1, 3), "action_mask": torch.tensor([[0, 1, 0]], dtype=torch.int8)}
    batch = transitions(seen, [0], [0.5], [0.9], ahead)
    batch.extras = q_draws(algo, batch)
    losses = []
    for preferred in (2, 1):
        for network in (algo.q_network, algo.target_network):
            layer = network.advantage.linears[-1]
            with torch.no_grad():
                layer.weight.zero_()
                table = layer.bias.view(3, -1)
                table.zero_()
                table[1] = torch.arange(table.shape[1]) / 4  # the atoms of one action differ from those of the others
                table[preferred, -1] += 5
        if name == "iqn":
            following = algo.next_quantiles(batch, q_noise(algo, batch), batch.extras["target_shares"], algo.config)
        else:
            following = next_distribution(
                algo.q_network,
                algo.target_network,
                batch,
                q_noise(algo, batch)[1:],
                algo.config.double,
            )
        losses.append(following)
        chosen = algo.target_network.distribution(
            ahead, *([None, batch.extras["target_shares"]] if name == "iqn" else [])
        )
        torch.testing.assert_close(following, chosen[:, 1])
    assert not torch.equal(*losses)


def test_c51_loss_at_termination_is_cross_entropy_to_the_reward(make_learner: Callable[..., Any]) -> None:
    algo = make_learner("c51", "Chain", **{"net.hidden": []}, **OWN["c51"])
    batch = transitions(torch.eye(5)[[2]], [1], [0.5], [0.0], torch.eye(5)[[3]])
    logs = algo.q_network.distribution(batch.obs)[0, 1]
    target = categorical_projection(torch.ones(1, 7) / 7, batch.reward, batch.discount, algo.q_network.support)[0]
    assert target.count_nonzero() == 2
    torch.testing.assert_close(q_loss(algo, batch)[0], -(target * logs).sum())


def test_atoms_in_wrong_order_raise(make_learner: Callable[..., Any]) -> None:
    from rlplug_core.errors import BadConfig

    with pytest.raises(BadConfig, match=r"v_min must be below v_max, and 1\.0 is not below 1\.0"):
        make_learner("c51", "Chain", v_min=1.0, v_max=1.0)
