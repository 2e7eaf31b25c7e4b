"""Continuous ACER: gradients against autograd, the dueling network, and targets with and without weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from rlplug_core.batches import Samples
from rlplug_core.clock import Clock
from rlplug_core.learning.losses import gaussian_kl_gradient
from rlplug_core.learning.losses import gaussian_score as score
from rlplug_core.loop.actor import Actor
from rlplug_core.testing import envs

FAR = 1e9


def test_score_and_gradient_equal_autograd() -> None:
    outputs = torch.randn(5, 4).requires_grad_()
    average = torch.randn(5, 4)
    action = torch.randn(5, 2)
    mean, log_std = outputs.chunk(2, -1)
    now = Normal(mean, log_std.exp())
    (wanted,) = torch.autograd.grad(now.log_prob(action).sum(), outputs, retain_graph=True)
    torch.testing.assert_close(score(outputs.detach(), action), wanted, rtol=1e-4, atol=1e-4)
    before = Normal(average[:, :2], average[:, 2:].exp())
    (wanted,) = torch.autograd.grad(kl_divergence(before, now).sum(), outputs)
    torch.testing.assert_close(gaussian_kl_gradient(average, outputs.detach()), wanted, rtol=1e-4, atol=1e-4)


def batch_of(learner: Any, count: int, shift: float = 0.0) -> Samples:
    """Draw actions around the policy's mean; the behavior's mean is shifted by `shift`."""
    obs = torch.rand(count, 1)
    with torch.no_grad():
        outputs = learner.policy(obs)
    action, drawn = (outputs[:, :1] + torch.randn(count, 1) * outputs[:, 1:].exp() for _ in range(2))
    then = outputs + torch.tensor([shift, 0.0])
    extras = {"outputs": then, "drawn": drawn, "others": torch.randn(count, learner.config.n_action_samples, 1)}
    return Samples(torch.ones(count), None, obs, action, torch.randn(count), torch.randn(count), extras)


def test_on_policy_gradient_is_the_policy_gradient(make_learner: Callable[..., Any]) -> None:
    """With a ratio of 1 and a wide trust region it is the gradient of -log π(a) · A."""
    learner = make_learner("acer-continuous", "Continuous", ent_coef=0.0, vf_coef=0.0, trust_region_delta=FAR)
    batch = batch_of(learner, 6)
    parameters = list(learner.policy.parameters())
    loss = -(learner.policy.head.log_prob(learner.policy(batch.obs), batch.action) * batch.advantage).mean()
    wanted = torch.autograd.grad(loss, parameters)
    for one, other in zip(torch.autograd.grad(learner.loss(batch, learner.config)[0], parameters), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_push_equals_the_definition(make_learner: Callable[..., Any]) -> None:
    """Row by row: the truncated weight at the taken action, the excess at the drawn one, then the projection."""
    learner = make_learner("acer-continuous", "Continuous", max_importance_weight=1.5, trust_region_delta=0.05)
    batch = batch_of(learner, 20, shift=1.0)
    c = 1.5
    with torch.no_grad():
        for parameter in learner.average_policy.parameters():
            parameter.add_(0.1)
        outputs = learner.policy(batch.obs)
        average = learner.average_policy(batch.obs)
        weight = (
            learner.head.log_prob(outputs, batch.action) - learner.head.log_prob(batch.extras["outputs"], batch.action)
        ).exp()
        centered = torch.randn(20)
        gradient = learner.trust_region_gradient(batch, outputs, weight, centered, learner.config)
    bound, cut = 0, 0
    for i in range(20):
        now, then = (Normal(part[i, 0], part[i, 1].exp()) for part in (outputs, batch.extras["outputs"]))
        action = batch.action[i, 0]
        drawn = batch.extras["drawn"][i, 0]
        taken, ratio = (math.exp(float(now.log_prob(x) - then.log_prob(x))) for x in (action, drawn))
        gain = min(c, taken) * batch.advantage[i] * score(outputs[i : i + 1], action.reshape(1, 1))[0]
        gain = gain + max(0.0, 1 - c / ratio) * centered[i] * score(outputs[i : i + 1], drawn.reshape(1, 1))[0]
        away = gaussian_kl_gradient(average[i : i + 1], outputs[i : i + 1])[0]
        excess = max(0.0, float(gain @ away) - 0.05) / float(away @ away)
        bound = bound + (excess > 0)
        cut = cut + (taken > c)
        torch.testing.assert_close(gradient[i], gain - excess * away, rtol=1e-3, atol=1e-4)
    assert bound
    assert cut


def test_dueling_advantages_are_centered_over_drawn_actions(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("acer-continuous", "Continuous", n_action_samples=3)
    obs = torch.rand(4, 1)
    others = torch.randn(4, 3, 1)
    each = [learner.critic.advantage({"obs": obs, "action": others[:, i], "others": others}) for i in range(3)]
    torch.testing.assert_close(sum(each), torch.zeros(4), rtol=0, atol=1e-5)


def test_on_policy_targets_are_returns_with_dueling_values(make_learner: Callable[..., Any]) -> None:
    """In episodes of one step the Retrace target and the untruncated return are the reward."""
    learner = make_learner("acer-continuous", "Continuous", n_steps=6)
    clock = Clock(100)
    buffer = learner.buffer()
    actor = Actor(envs.Continuous(2), learner, learner.agent(), buffer, clock)
    actor.reset(0)
    for _ in range(6):
        step = actor.step()
        buffer.add(step)
    rollout = next(iter(buffer.batches(clock)))
    assert rollout.terminated.all()
    batch = learner.retrace_targets(rollout, learner.config)
    np.testing.assert_allclose(batch.target, rollout.reward.ravel(), rtol=1e-5)
    with torch.no_grad():
        value = learner.critic.value(batch.obs)
        drawn = batch.extras["others"]
        outputs = learner.policy(batch.obs)
    torch.testing.assert_close(batch.advantage, batch.target - value, rtol=1e-4, atol=1e-5)
    assert drawn.shape == (12, 5, 1)
    scaled = (drawn[..., 0] - outputs[:, :1]) / outputs[:, 1:].exp()
    assert float(scaled.mean()) == pytest.approx(0, abs=0.5)
    assert float(scaled.std()) == pytest.approx(1, abs=0.3)


def test_finds_the_best_action(train_runner: Callable[..., Any]) -> None:
    """The best action is x / 2 for the observation x."""
    options = {
        "num_envs": 8, "n_steps": 8, "learning_starts": 200, "buffer_size": 2_000, "gamma": 0.9, "learning_rate": 2e-3,
        "ent_coef": 0.0, "anneal_lr": True, "net.hidden": [32], "total_timesteps": 12_000,
    }  # fmt: skip
    learner = train_runner("acer-continuous", "Continuous", **options).snapshot()
    seen = torch.linspace(-0.9, 0.9, 7).reshape(-1, 1)
    with torch.no_grad():
        mean = learner.policy(seen)[:, 0]
    assert mean.tolist() == pytest.approx((seen[:, 0] / 2).tolist(), abs=0.1)
