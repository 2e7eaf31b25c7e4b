"""TRPO and ACKTR: losses by hand, steps within the region, moments of valid rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Rollout, Samples
from rlplug_core.clock import Clock
from rlplug_core.learning.estimators import gae
from rlplug_core.loop.actor import Actor
from rlplug_core.testing import envs


def samples(learner: Any, obs: Tensor, action: Tensor, advantage: Tensor, weight: Tensor | None = None) -> Samples:
    """Return a batch of the current policy, with targets of 0."""
    with torch.no_grad():
        before = learner.policy(obs)
    ones = torch.ones(len(obs))
    return Samples(ones if weight is None else weight, None, obs, action, advantage, 0 * ones, {"before": before})


def collect(learner: Any, env: type[envs.Vector], num_envs: int = 2) -> Rollout:
    """Return the learner's first rollout."""
    clock = Clock(10_000)
    buffer = learner.buffer()
    actor = Actor(env(num_envs), learner, learner.agent(), buffer, clock)
    actor.reset(0)
    while not (rollouts := list(buffer.batches(clock))):
        step = actor.step()
        buffer.add(step)
    rollout: Rollout = rollouts[0]
    return rollout


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("advantage", [-2.0, 3.0])
def test_surrogate_gradient_of_a_two_armed_bandit(
    make_learner: Callable[..., Any], action: int, advantage: float
) -> None:
    """For the old policy d/dz of -ratio · A is (π - 1_a) · A; for others it is scaled by the ratio."""
    learner = make_learner("trpo", "Bandit", **{"net.hidden": []})
    bias = learner.policy.outputs.bias
    with torch.no_grad():
        learner.policy.outputs.weight.zero_()
        bias.copy_(torch.tensor([0.3, -0.4]))
    batch = samples(learner, torch.ones(1, 1), torch.tensor([action]), torch.tensor([advantage]))
    chosen = torch.eye(2)[action]
    before = bias.detach().softmax(0)
    for logits in (bias.detach().clone(), torch.tensor([1.0, 0.5])):
        with torch.no_grad():
            bias.copy_(logits)
        loss = learner.loss(batch, learner.config)
        (gradient,) = torch.autograd.grad(loss, bias)
        pi = logits.softmax(0)
        ratio = pi[action] / before[action]
        torch.testing.assert_close(gradient, ratio * (pi - chosen) * advantage)
        assert loss.item() == pytest.approx(-float(ratio) * advantage)


def test_entropy_bonus_is_subtracted(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("trpo", "Chain", ent_coef=0.5)
    plain = make_learner("trpo", "Chain")
    batch = samples(learner, torch.randn(3, 5), torch.tensor([0, 1, 0]), torch.randn(3))
    entropy = learner.policy.head.entropy(learner.policy(batch.obs)).mean()
    torch.testing.assert_close(learner.loss(batch, learner.config), plain.loss(batch, plain.config) - 0.5 * entropy)


@pytest.mark.parametrize("env", ["Chain", "Continuous", "Masked"])
@pytest.mark.parametrize("thin", [1, 3])
def test_update_stays_in_the_region(make_learner: Callable[..., Any], env: str, thin: int) -> None:
    """The mean KL divergence of an update, computed independently, equals the reported one and is within the bound."""
    learner = make_learner("trpo", env, n_steps=64, target_kl=0.02, sub_sampling_factor=thin)
    rollout = collect(learner, getattr(envs, env))
    advantage = torch.zeros(128)
    obs = rollout.samples(advantage.numpy(), advantage.numpy(), learner.device).obs
    with torch.no_grad():
        before = learner.policy(obs)
    result = learner.update(rollout, Clock(10_000))
    with torch.no_grad():
        divergence = learner.policy.head.kl(before, learner.policy(obs)).mean()
    assert float(divergence) == pytest.approx(float(result.metrics["loss/kl"]), rel=1e-3)
    assert 0.1 * 0.02 < float(divergence) <= 0.02


def test_rows_of_weight_0_change_no_policy(make_learner: Callable[..., Any]) -> None:
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    moved = []
    for filling in (0.0, 3.0):
        learner = make_learner("trpo", "Chain", target_kl=0.1)
        torch.manual_seed(0)
        batch = samples(learner, torch.randn(6, 5), torch.tensor([0, 1, 0, 1, 1, 0]), torch.randn(6), weight)
        empty = weight == 0
        batch.obs[empty] = filling
        batch.advantage[empty] = filling
        learner.improve(batch, learner.config)
        moved.append(learner.trust_region.flat.clone())
    assert torch.equal(*moved)


def test_critic_is_fitted_with_a_constant_policy(make_learner: Callable[..., Any]) -> None:
    """Two epochs of four minibatches; `improve` changes only the policy, and the rest only the critic."""
    learner = make_learner("trpo", "Chain", n_steps=64, batch_size=16, n_critic_updates=2)
    rollout = collect(learner, envs.Chain, 1)
    policy = learner.trust_region.flat.clone()
    critic = learner.optimizers[0].flat.clone()
    learner.improve(samples_of(learner, rollout), learner.config)
    assert not torch.equal(learner.trust_region.flat, policy)
    assert torch.equal(learner.optimizers[0].flat, critic)
    learner.update(rollout, Clock(100))
    assert learner.optimizers[0].state["steps"] == 8


def samples_of(learner: Any, rollout: Rollout) -> Samples:
    value, _ = learner.predict_values(rollout)
    rollout_samples: Samples = rollout.samples(rollout.reward - value, rollout.reward, learner.device)
    return rollout_samples


@pytest.mark.parametrize("env", ["Chain", "Continuous"])
def test_acktr_follows_the_natural_gradient_of_its_loss(make_learner: Callable[..., Any], env: str) -> None:
    """One update by hand: the moments of this batch, their inverse, the region, the step."""
    options = {"n_steps": 16, "momentum": 0.0, "kfac_damping": 0.1, "learning_rate": 0.5}
    learner, probe = (make_learner("acktr", env, **options) for _ in range(2))
    rollout = collect(learner, getattr(envs, env))
    value, following = rollout.values(learner.predict_value)
    batch = rollout.samples(
        *gae(rollout, value, following, learner.config.gamma, learner.config.gae_lambda), learner.device
    )
    parts = torch.autograd.grad(probe.loss(batch, probe.config)[0], probe.optimizers[0].parameters)
    gradient = torch.cat([part.reshape(-1) for part in parts])
    before = learner.optimizers[0].flat.clone()
    learner.update(rollout, Clock(100))
    natural = probe.kfac.natural(gradient, learner.optimizers[0].state)
    step = before - learner.optimizers[0].flat
    with torch.no_grad():
        variance = float((probe.critic(batch.obs) - batch.target).square().mean())
    radii = (learner.config.kfac_clip, learner.config.critic_kfac_clip * variance)
    for (span, _), radius in zip(probe.kfac.spans, radii, strict=True):
        divergence = 0.5 * 0.25 * float(natural[span] @ gradient[span])
        shrunk = min(1.0, (radius / divergence) ** 0.5)
        expected = 0.5 * shrunk * natural[span]
        share = float(step[span] @ expected / (expected @ expected))  # the policy's true divergence may shorten it
        assert 0.5 < share < 1.001 if span.start == 0 else share == pytest.approx(1, rel=1e-3)
        torch.testing.assert_close(step[span], share * expected, rtol=1e-3, atol=1e-6)


def test_acktr_halves_its_steps_on_a_plateau(make_learner: Callable[..., Any]) -> None:
    """Also if the region, not the learning rate, limits the step."""
    moved = []
    for scale in (1.0, 0.5):
        learner = make_learner("acktr", "Chain", n_steps=16, kfac_clip=1e-5, critic_kfac_clip=1e-5)
        rollout = collect(learner, envs.Chain)
        before = learner.optimizers[0].flat.clone()
        clock = Clock(100)
        clock.scale = scale
        learner.update(rollout, clock)
        moved.append(learner.optimizers[0].flat - before)
    torch.testing.assert_close(moved[1], 0.5 * moved[0], rtol=1e-3, atol=1e-7)


def test_acktr_step_does_not_depend_on_the_scale_of_rewards(make_learner: Callable[..., Any]) -> None:
    """Errors a hundred times as large change the critic by the same multiple of them."""
    moved = []
    for scale in (1.0, 100.0):
        learner = make_learner("acktr", "Chain", learning_rate=1.0, momentum=0.0, **{"net.hidden": []})
        with torch.no_grad():
            learner.critic.output.weight.zero_()
            learner.critic.output.bias.zero_()
        batch = samples(learner, torch.eye(5), torch.tensor([0, 1, 0, 1, 1]), torch.zeros(5))
        batch.target = scale * torch.arange(5.0)
        learner.observe(batch)
        learner.kfac.refresh()
        learner.optimizers[0].minimize(learner.loss(batch, learner.config)[0], Clock(100))
        moved.append(learner.critic(batch.obs).detach() / scale)
    torch.testing.assert_close(*moved, rtol=1e-3, atol=1e-5)
    assert float(moved[0].square().mean()) == pytest.approx(2 * learner.config.critic_kfac_clip * 6, rel=0.1)


def test_acktr_decomposes_at_first_and_then_at_intervals(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("acktr", "Chain", n_steps=4, kfac_update_interval=3)
    rollout = collect(learner, envs.Chain)
    clock = Clock(100)
    seen = []
    for _ in range(7):
        learner.update(rollout, clock)
        clock.updates += 1
        seen.append(learner.optimizers[0].state["0/outputs/vectors"].clone())
    changed = [not torch.equal(one, other) for one, other in pairwise(seen)]
    assert changed == [False, True, False, False, True, False]


def test_acktr_ignores_rows_of_weight_0(make_learner: Callable[..., Any]) -> None:
    weight = torch.tensor([1.0, 0.0, 1.0])
    states = []
    for filling in (0.0, 5.0):
        learner = make_learner("acktr", "Chain")
        obs = torch.eye(5)[:3].clone()
        obs[1] = filling
        batch = samples(learner, obs, torch.tensor([0, 1, 1]), torch.zeros(3), weight)
        learner.observe(batch)
        states.append({name: tensor.clone() for name, tensor in learner.optimizers[0].state.items()})
    unseen = make_learner("acktr", "Chain").optimizers[0].state
    assert not all(torch.equal(tensor, unseen[name]) for name, tensor in states[0].items())
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name])


@pytest.mark.parametrize("env", ["Chain", "Continuous"])
def test_acktr_bounds_the_divergence_of_its_policy(make_learner: Callable[..., Any], env: str) -> None:
    """Large steps with momentum: with only the model of K-FAC some are ten times as large."""
    options = {"n_steps": 32, "kfac_clip": 1e-3, "learning_rate": 1.0, "kfac_damping": 1e-4, "momentum": 0.9}
    learner = make_learner("acktr", env, **options)
    clock = Clock(100)
    buffer = learner.buffer()
    divergences = []
    actor = Actor(getattr(envs, env)(2), learner, learner.agent(), buffer, clock)
    actor.reset(0)
    while len(divergences) < 30:
        buffer.add(actor.step())
        for rollout in buffer.batches(clock):
            obs = torch.from_numpy(rollout.obs[:-1].reshape(64, -1).copy())
            before = learner.policy(obs).detach()
            told = learner.update(rollout, clock).metrics["loss/kl"]
            with torch.no_grad():
                divergences.append(float(learner.policy.head.kl(before, learner.policy(obs)).mean()))
            assert float(told) == pytest.approx(divergences[-1], rel=1e-3, abs=1e-9)
            clock.updates += 1
    assert max(divergences) <= 1e-3 * (1 + 1e-4)
    assert sum(value > 5e-4 for value in divergences) > 5  # the fallback is not the reason that they are small


def test_acktr_undoes_a_step_that_is_too_long(
    make_learner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner("acktr", "Chain", n_steps=16)
    rollout = collect(learner, envs.Chain)
    monkeypatch.setattr(type(learner.policy.head), "kl", lambda head, one, other: torch.ones(32))
    policy, critic = (learner.kfac.part(learner.optimizers[0].flat, region).clone() for region in (0, 1))
    assert float(learner.update(rollout, Clock(100)).metrics["loss/kl"]) == 0.0
    assert torch.equal(learner.kfac.part(learner.optimizers[0].flat, 0), policy)
    assert not torch.equal(learner.kfac.part(learner.optimizers[0].flat, 1), critic)
