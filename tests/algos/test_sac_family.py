"""TQC, CrossQ and discrete SAC: their differences from SAC, against slow references."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from tests.algos.losses import critic_loss, gradients_of, huber, pairs, policy_loss, scatter, with_draws
from tests.tables import for_each

SMALL = {"net.hidden": [16]}


def transitions(obs: Any, action: Tensor, next_obs: Any, weight: Tensor | None = None) -> Transitions:
    count = len(action)
    return Transitions(
        weight=torch.ones(count) if weight is None else weight,
        share=None,
        obs=obs,
        action=action,
        reward=3 * torch.randn(count),
        discount=0.9 * torch.randint(0, 2, (count,)),
        next_obs=next_obs,
        index=torch.arange(count),
        extras={},
    )


def continuous(count: int, weight: Tensor | None = None) -> Transitions:
    number = torch.rand(3, count, 1) * 2 - 1
    return transitions(number[0], number[1], number[2], weight)


def tqc_reference(learner: Any, batch: Transitions) -> Tensor:
    """Return the critics' loss, quantile by quantile."""
    c = learner.config
    losses = []
    for i in range(len(batch.action)):
        with torch.no_grad():
            outputs = learner.policy(batch.next_obs[i : i + 1])
            action, log_prob = learner.head.draw(outputs, batch.extras["next_noise"][i : i + 1])
            atoms = [
                float(z) for one in learner.target_critics.members for z in one(batch.next_obs[i : i + 1], action)[0]
            ]
            kept = sorted(atoms)[: len(atoms) - c.n_critics * c.top_quantiles_to_drop_per_net]
            bonus = float(learner.temperature.log.exp() * log_prob)
            targets = [float(batch.reward[i]) + float(batch.discount[i]) * (z - bonus) for z in kept]
        terms = []
        for one in learner.critics.members:
            for m, quantile in enumerate(one(batch.obs[i : i + 1], batch.action[i : i + 1])[0]):
                share = (2 * m + 1) / (2 * c.n_quantiles)
                terms += [abs(share - float(y < quantile)) * huber(y - quantile) for y in targets]
        losses.append(batch.weight[i] * torch.stack(terms).mean())
    return torch.stack(losses).sum() / max(1, int((batch.weight > 0).sum()))


@pytest.mark.parametrize(("critics", "drop"), [(2, 0), (2, 2), (3, 1)])
def test_tqc_drops_the_top_of_all_quantiles(make_learner: Callable[..., Any], critics: int, drop: int) -> None:
    learner = make_learner(
        "tqc", "Continuous", n_critics=critics, n_quantiles=5, top_quantiles_to_drop_per_net=drop, **SMALL
    )
    scatter(learner)
    batch = with_draws(learner, continuous(8, torch.tensor([1.0, 0.0, 0.25, 2.0] * 2)))
    loss = critic_loss(learner, batch)[0]
    expected = tqc_reference(learner, batch)
    assert learner.truncated_target(batch, batch.extras["next_noise"], learner.config).shape == (
        8,
        critics * (5 - drop),
    )
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(gradients_of(loss, learner.critics), gradients_of(expected, learner.critics), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    mean = torch.stack([one(batch.obs, batch.action).mean(1) for one in learner.critics.members]).mean(0)
    torch.testing.assert_close(learner.critics.pooled(batch.obs, batch.action).mean(1), mean)


def test_tqc_cannot_drop_all_quantiles(make_learner: Callable[..., Any]) -> None:
    sentence = "tqc: top_quantiles_to_drop_per_net 5 drops all 5 quantiles; set a lower number"
    with pytest.raises(UsageError, match=sentence):
        make_learner("tqc", "Continuous", n_quantiles=5, top_quantiles_to_drop_per_net=5)


def test_crossq_normalizes_both_observations_together(make_learner: Callable[..., Any]) -> None:
    """The values of (s, a) depend on s' through the moments; the bootstrap has no gradient."""
    learner = make_learner("crossq", "Continuous", **SMALL)
    scatter(learner)
    batch = with_draws(learner, continuous(16))
    with torch.no_grad():
        action, log_prob = learner.head.draw(learner.policy(batch.next_obs), batch.extras["next_noise"])
    obs = torch.cat([batch.obs, batch.next_obs])
    actions = torch.cat([batch.action, action])
    weight = torch.cat([torch.ones(16), (batch.discount > 0).float()])
    values = torch.stack([one(obs, actions, weight) for one in learner.critics.members])
    soft = values[:, 16:].detach().amin(0) - learner.temperature(learner.config.ent_coef) * log_prob
    expected = (0.5 * (values[:, :16] - (batch.reward + batch.discount * soft)) ** 2).sum(0).mean()
    loss = critic_loss(learner, batch)[0]
    torch.testing.assert_close(loss, expected)
    for got, wanted in zip(gradients_of(loss, learner.critics), gradients_of(expected, learner.critics), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_crossq_policy_uses_critics_with_moments_of_the_same_update(
    make_learner: Callable[..., Any],
) -> None:
    """The authors replace `batch_stats` in `update_critic`, and call `update_actor` after it."""
    learner = make_learner("crossq", "Continuous", policy_delay=1, **SMALL)
    batch = continuous(16)
    seen: list[Tensor] = []
    norm = learner.critics[0].layers.norms[0]
    learner.critics.register_forward_pre_hook(lambda *_: seen.append(norm.mean.clone()))
    learner.update(batch, Clock(100))
    assert torch.equal(seen[0], torch.zeros_like(norm.mean)), "the critics' loss, before"
    assert torch.equal(seen[-1], norm.mean), "the policy's loss, after"
    assert not torch.equal(seen[-1], seen[0])


def test_crossq_temperature_has_the_usual_betas(make_learner: Callable[..., Any]) -> None:
    """The authors use `optax.adam(learning_rate)` for the temperature, and `b1=0.5` for policy and critics."""
    learner = make_learner("crossq", "Continuous", learning_rate=0.01, policy_delay=1, **SMALL)
    betas = {one.name: one.rule.betas for one in learner.optimizers}
    assert betas == {"CrossQ.critics": (0.5, 0.999), "CrossQ.policy": (0.5, 0.999), "CrossQ.temperature": (0.9, 0.999)}
    learner.update(continuous(16), Clock(100))
    assert abs(learner.temperature.log.item()) == pytest.approx(0.01, rel=1e-3), (
        "Adam's first step is the learning rate"
    )


def test_crossq_without_autotune_has_no_temperature_optimizer(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("crossq", "Continuous", autotune=False, policy_delay=1, **SMALL)
    learner.update(continuous(16), Clock(100))
    assert [one.name for one in learner.optimizers] == ["CrossQ.critics", "CrossQ.policy"]


def test_crossq_absorbs_moments_at_the_end_of_the_update(make_learner: Callable[..., Any]) -> None:
    """Those of the critics at every update, those of the policy when it learns; it has no targets."""
    learner = make_learner("crossq", "Continuous", policy_delay=2, **SMALL)
    clock = Clock(100)
    counts = []
    for _ in range(4):
        learner.update(continuous(8), clock)
        clock.updates += 1
        norms = (learner.critics[0].layers.norms[0], learner.policy.encoder.norms[0])
        counts.append(tuple(int(norm.updates) for norm in norms))
    assert counts == [(1, 0), (2, 1), (3, 1), (4, 2)]
    assert pairs(learner) == []


def masked(count: int, weight: Tensor | None = None) -> Transitions:
    """Return random transitions of `Masked`."""
    masks = (torch.arange(3) != torch.randint(0, 3, (2, count, 1))).to(torch.int8)
    obs, next_obs = ({"obs": mask.float() + torch.rand(count, 3), "action_mask": mask} for mask in masks)
    return transitions(obs, masks[0].argmax(1), next_obs, weight)


def discrete_reference(learner: Any, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Return the losses of critics and of policy and temperature, action by action."""
    critic, policy = [], []
    for i in range(len(batch.action)):
        obs, next_obs = ({name: part[i : i + 1] for name, part in tree.items()} for tree in (batch.obs, batch.next_obs))
        temperature = learner.temperature.log.exp().detach()
        with torch.no_grad():
            probs = learner.policy(next_obs).softmax(-1)[0]
            values = torch.stack([one(next_obs)[0] for one in learner.target_critics.members])
            legal = [a for a in range(3) if next_obs["action_mask"][0, a]]
            soft = sum(probs[a] * (values[:, a].min() - temperature * probs[a].log()) for a in legal)
        target = float(batch.reward[i] + batch.discount[i] * soft)
        errors = [one(obs)[0, batch.action[i]] - target for one in learner.critics.members]
        critic.append(batch.weight[i] * sum(0.5 * error**2 for error in errors))
        probs = learner.policy(obs).softmax(-1)[0]
        values = torch.stack([one(obs)[0] for one in learner.critics.members])
        legal = [a for a in range(3) if obs["action_mask"][0, a]]
        climb = sum(probs[a] * (temperature * probs[a].log() - values[:, a].min()) for a in legal)
        entropy = -sum(float((probs[a] * probs[a].log()).detach()) for a in legal)
        term = climb + learner.temperature.log * (entropy - 0.98 * math.log(len(legal)))
        policy.append(batch.weight[i] * term.squeeze())
    count = max(1, int((batch.weight > 0).sum()))
    return torch.stack(critic).sum() / count, torch.stack(policy).sum() / count


def test_discrete_losses_sum_over_legal_actions(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("sac-discrete", "Masked", **SMALL)
    scatter(learner)
    batch = masked(12, torch.tensor([1.0, 0.0, 0.25, 2.0] * 3))
    ours = (critic_loss(learner, batch)[0], policy_loss(learner, batch)[0])
    theirs = discrete_reference(learner, batch)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1].squeeze(), theirs[1], rtol=1e-4, atol=1e-5)
    for one, other, module in zip(ours, theirs, (learner.critics, learner.policy), strict=True):
        for got, wanted in zip(gradients_of(one, module), gradients_of(other, module), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["tqc", "crossq", "sac-discrete"])
def test_rows_of_weight_0_change_nothing(make_learner: Callable[..., Any], name: str) -> None:
    discrete = name == "sac-discrete"
    learner = make_learner(name, "Masked" if discrete else "Continuous", **SMALL)
    scatter(learner)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.5])
    batch = with_draws(learner, (masked if discrete else continuous)(5, weight))
    garbage = batch.map(torch.clone)
    garbage.reward[weight == 0] = 70.0
    for obs in (garbage.obs, garbage.next_obs):
        (obs["obs"] if discrete else obs)[weight == 0] = 7.0
    for loss, module in ((critic_loss, learner.critics), (policy_loss, learner.policy)):
        for a, b in zip(
            gradients_of(loss(learner, batch)[0], module), gradients_of(loss(learner, garbage)[0], module), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("aim", "direction"), [(5.0, 1), (-5.0, -1)])
def test_discrete_temperature_moves_the_entropy_to_its_target(
    make_learner: Callable[..., Any], aim: float, direction: int
) -> None:
    learner = make_learner("sac-discrete", "Masked", target_entropy=aim, learning_rate=0.1, **SMALL)
    learner.update(masked(8), Clock(100))
    assert float(learner.temperature.log.detach()) * direction == pytest.approx(0.1, rel=0.01)


@for_each("optimizer", ["adam", "adamw", "sgd", "torch.optim.NAdam"])
@for_each("algorithm", ["sac", "cql", "tqc", "crossq", "sac-discrete"])
def test_weight_decay_shrinks_networks_but_not_the_temperature(
    make_learner: Callable[..., Any], algorithm: str, optimizer: str
) -> None:
    discrete = algorithm == "sac-discrete"
    results = []
    each = {"policy_delay": 1} if algorithm == "crossq" else {}
    batch = masked(8) if discrete else continuous(8)
    for decay in (0.0, 0.5):
        options = {"optimizer": optimizer, "optimizer_kwargs.weight_decay": decay, "ent_coef": 0.1, **SMALL, **each}
        learner = make_learner(algorithm, "Masked" if discrete else "Continuous", learning_rate=0.1, **options)
        learner.update(batch, Clock(100))
        weight = next(one for one in learner.policy.parameters() if one.ndim == 2)
        results.append((learner.temperature.log.detach().clone(), weight.detach().clone()))
    torch.testing.assert_close(results[0][0], results[1][0])
    assert not torch.equal(results[0][0], torch.tensor([0.1]).log())
    assert (results[0][1] != results[1][1]).any()


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac", "tqc", "crossq"])
def test_policy_loss_computes_no_gradients_of_critics(
    make_learner: Callable[..., Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be discarded; later the critics require gradients again."""
    learner = make_learner(algorithm, "Continuous", **SMALL)
    wanted = list[bool]()
    loss = type(learner).policy_loss

    def record_and_compute(learner: Any, *given: Any) -> Any:
        wanted.extend(parameter.requires_grad for parameter in learner.critics.parameters())
        return loss(learner, *given)

    monkeypatch.setattr(type(learner), "policy_loss", record_and_compute)
    clock = Clock(100, updates=5)
    learner.update(continuous(8), clock)
    assert wanted
    assert not any(wanted)
    assert all(parameter.requires_grad for parameter in learner.critics.parameters())
