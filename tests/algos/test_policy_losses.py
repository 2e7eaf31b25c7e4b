"""The losses of PPO, A2C and its variants, and their gradients: by hand and sample by sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

import rlplug_core as rl
from rlplug_algos.policy_gradient.ppo import PPO
from rlplug_core.batches import Samples
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.actor import Actor
from rlplug_core.testing.envs import Chain
from tests.algos.losses import gradients
from tests.tables import for_each

#: All algorithms with the loss of A2C or PPO.
POLICIES = ["a2c", "a3c", "acktr", "ppo", "vac", "vpg"]


def samples(
    obs: Tensor,
    action: Tensor,
    advantage: Tensor,
    target: Tensor | None = None,
    *,
    log_prob: Tensor | None = None,
    weight: Tensor | None = None,
) -> Samples:
    """Return a batch, by default with targets of 0 and weights of 1."""
    count = len(advantage)
    return Samples(
        weight=torch.ones(count) if weight is None else weight,
        share=None,
        obs=obs,
        action=action,
        advantage=advantage,
        target=torch.zeros(count) if target is None else target,
        extras={"log_prob": torch.zeros(count) if log_prob is None else log_prob},
    )


def random_samples(env: str, count: int, weight: Tensor | None = None) -> Samples:
    """Return `count` random samples for an environment of `rlplug_core.testing.envs`."""
    width, action = {
        "Bandit": (1, torch.randint(0, 2, (count,))),
        "Chain": (5, torch.randint(0, 2, (count,))),
        "Continuous": (1, torch.randn(count, 1)),
    }[env]
    obs = torch.randn(count, width)
    advantage = torch.randn(count)
    target = torch.randn(count)
    return samples(obs, action, advantage, target, log_prob=-torch.rand(count) - 0.2, weight=weight)


def distribution(policy: Any, obs: Tensor) -> Categorical | Normal:
    """Return the distribution over actions for one observation with torch's classes."""
    outputs = policy(obs.unsqueeze(0))[0]
    if policy.head.size == 2 * getattr(policy.head, "dims", 0):
        mean, log_std = outputs.chunk(2)
        return Normal(mean, log_std.exp())
    return Categorical(logits=outputs)


def policy_loss(learner: Any, log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Return the policy term of A2C or PPO for one sample."""
    if not isinstance(learner, PPO):
        return -log_prob * advantage
    ratio = (log_prob - old_log_prob).exp()
    clip = learner.config.clip_range
    if advantage >= 0:
        return -advantage * min(ratio, torch.tensor(1 + clip))
    return -advantage * max(ratio, torch.tensor(1 - clip))


def reference(learner: Any, batch: Samples) -> Tensor:
    """Return the whole loss, sample by sample; the mean over valid samples."""
    config = learner.config
    losses = []
    for i in range(len(batch.weight)):
        over = distribution(learner.policy, batch.obs[i])
        log_prob = over.log_prob(batch.action[i]).sum()
        old = batch.extras["log_prob"][i]
        value_loss = (learner.critic(batch.obs[i : i + 1])[0] - batch.target[i]) ** 2
        loss = policy_loss(learner, log_prob, old, batch.advantage[i])
        loss = loss + config.vf_coef * value_loss - config.ent_coef * over.entropy().sum()
        losses.append(batch.weight[i] * loss)
    return torch.stack(losses).sum() / max(1, int((batch.weight > 0).sum()))


@for_each("env", ["Chain", "Continuous"])
@for_each("algorithm", POLICIES)
def test_loss_and_gradient_equal_the_reference(make_learner: Callable[..., Any], algorithm: str, env: str) -> None:
    learner = make_learner(algorithm, env, ent_coef=0.3, vf_coef=0.7, normalize_advantage=False)
    weight = torch.tensor([1.0, 0.0, 2.5, 1.0, 0.5, 1.0, 0.0])
    batch = random_samples(env, 7, weight)
    loss = learner.loss(batch, learner.config)[0]
    expected = reference(learner, batch)
    torch.testing.assert_close(loss, expected)
    for got, wanted in zip(gradients(learner, loss), gradients(learner, expected), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("advantage", [-2.0, 3.0])
def test_policy_gradient_of_a_two_armed_bandit(make_learner: Callable[..., Any], action: int, advantage: float) -> None:
    """d/dz of -log softmax(z)[a] · A is (π - 1_a) · A, with π from the logits."""
    learner = make_learner("a2c", "Bandit", ent_coef=0.0, vf_coef=0.0, **{"net.hidden": []})
    logits = torch.tensor([0.3, -0.4])
    with torch.no_grad():
        learner.policy.outputs.weight.zero_()
        learner.policy.outputs.bias.copy_(logits)
    batch = samples(torch.ones(1, 1), torch.tensor([action]), torch.tensor([advantage]))
    learner.loss(batch, learner.config)[0].backward()
    pi = 1 / (1 + torch.exp(logits[1] - logits[0]))
    chosen = torch.tensor([1.0 - action, float(action)])
    torch.testing.assert_close(learner.policy.outputs.bias.grad, (torch.stack([pi, 1 - pi]) - chosen) * advantage)


def test_entropy_bonus_pulls_towards_uniform(make_learner: Callable[..., Any]) -> None:
    """dH/dz_i = -π_i (log π_i + H), and the loss subtracts the bonus."""
    learner = make_learner("a2c", "Bandit", ent_coef=0.5, vf_coef=0.0, **{"net.hidden": []})
    logits = torch.tensor([1.0, 0.0])
    with torch.no_grad():
        learner.policy.outputs.weight.zero_()
        learner.policy.outputs.bias.copy_(logits)
    batch = samples(torch.ones(1, 1), torch.tensor([0]), torch.zeros(1))
    learner.loss(batch, learner.config)[0].backward()
    pi = logits.softmax(0)
    entropy = -(pi * pi.log()).sum()
    torch.testing.assert_close(learner.policy.outputs.bias.grad, 0.5 * pi * (pi.log() + entropy))


def test_value_gradient_by_hand(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("a2c", "Bandit", ent_coef=0.0, vf_coef=0.5, **{"net.hidden": []})
    with torch.no_grad():
        learner.critic.output.weight.zero_()
        learner.critic.output.bias.fill_(0.25)
    batch = samples(torch.ones(1, 1), torch.tensor([0]), torch.zeros(1), torch.tensor([2.0]))
    learner.loss(batch, learner.config)[0].backward()
    torch.testing.assert_close(learner.critic.output.bias.grad, torch.tensor([0.5 * 2 * (0.25 - 2.0)]))


def test_standardized_advantages_ignore_rows_of_weight_0(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("a2c", "Chain", normalize_advantage=True)
    batch = random_samples("Chain", 6, torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 0.0]))
    counted = batch.advantage[batch.weight > 0]
    by_hand = random_samples("Chain", 6, batch.weight)
    by_hand.obs = batch.obs
    by_hand.action = batch.action
    by_hand.target = batch.target
    by_hand.advantage = (batch.advantage - counted.mean()) / counted.std()
    plain = make_learner("a2c", "Chain", normalize_advantage=False)
    torch.testing.assert_close(learner.loss(batch, learner.config)[0], plain.loss(by_hand, plain.config)[0])


CLIP = 0.2


@for_each("ratio, advantage, follows", [
        (1.1, 1.0, True), (0.9, -1.0, True), (1.5, 1.0, False), (0.5, 1.0, True), (1.5, -1.0, True), (0.5, -1.0, False),
        (1.0, 1.0, True), (1.0, -1.0, True),
    ])  # fmt: skip
def test_clipping_stops_only_gains(
    make_learner: Callable[..., Any], ratio: float, advantage: float, follows: bool
) -> None:
    """Equation 7: beyond the clip the gradient is 0 if a further step would gain, and unchanged if it would lose.

    If it is not 0, d/dz of -ratio · A is ratio · A · (π - 1_a).
    """
    learner = make_learner(
        "ppo",
        "Bandit",
        clip_range=CLIP,
        ent_coef=0.0,
        vf_coef=0.0,
        normalize_advantage=False,
        **{"net.hidden": []},
    )
    logits = torch.tensor([0.3, -0.4])
    action = 1
    with torch.no_grad():
        learner.policy.outputs.weight.zero_()
        learner.policy.outputs.bias.copy_(logits)
    pi = logits.softmax(0)
    before = pi[action].log().reshape(1) - torch.tensor([ratio]).log()
    batch = samples(torch.ones(1, 1), torch.tensor([action]), torch.tensor([advantage]), log_prob=before)
    loss = learner.loss(batch, learner.config)[0]
    loss.backward()
    chosen = torch.tensor([0.0, 1.0])
    torch.testing.assert_close(learner.policy.outputs.bias.grad, ratio * advantage * (pi - chosen) * follows)
    bound = min(ratio, 1 + CLIP) if advantage > 0 else max(ratio, 1 - CLIP)
    torch.testing.assert_close(loss, torch.tensor(-bound * advantage))


@for_each("before", [-1.0, 0.0, 0.4, 0.6, 3.0])
@for_each("target", [-2.0, 0.5, 2.0])
@for_each("clip", [None, 0.2])
def test_value_clipping_uses_the_larger_error(
    make_learner: Callable[..., Any], before: float, target: float, clip: float | None
) -> None:
    """V = 0.5 now; beyond the clip, the gradient is 0 if the clipped value has the larger error."""
    learner = make_learner("ppo", "Bandit", ent_coef=0.0, vf_coef=1.0, clip_range_vf=clip, **{"net.hidden": []})
    with torch.no_grad():
        learner.critic.output.weight.zero_()
        learner.critic.output.bias.fill_(0.5)
    now = torch.tensor([0.5])
    advantage = torch.tensor([target - before])
    batch = samples(torch.ones(1, 1), torch.tensor([0]), advantage, torch.tensor([target]))
    error = (0.5 - target) ** 2
    clipped = 0.0
    if clip is not None:
        clipped = (before + max(-clip, min(clip, 0.5 - before)) - target) ** 2
    loss, metrics = learner.loss(batch, learner.config)
    assert float(metrics["loss/value"]) == pytest.approx(max(error, clipped))
    (gradient,) = torch.autograd.grad(loss, learner.critic.output.bias)
    if clip is None or error > clipped:
        torch.testing.assert_close(gradient, 2 * (now - target))
    elif clipped > error:
        assert float(gradient) == 0


def test_value_clipping_with_popart_has_normalized_units(make_learner: Callable[..., Any]) -> None:
    """Rewards a hundred times as large have the same loss."""
    losses = []
    for size in (1.0, 100.0):
        learner = make_learner("ppo", "Bandit", popart=True, clip_range_vf=0.2, ent_coef=0.0, **{"net.hidden": []})
        targets = torch.tensor([-size, size])
        learner.critic.update_stats(samples(torch.ones(2, 1), torch.tensor([0, 0]), torch.zeros(2), targets))
        with torch.no_grad():
            learner.critic.output.linear.weight.zero_()
            learner.critic.output.linear.bias.fill_(0.5)
        batch = samples(torch.ones(1, 1), torch.tensor([0]), torch.tensor([size]), torch.tensor([0.6 * size]))
        losses.append(float(learner.loss(learner.critic.normalize(batch), learner.config)[1]["loss/value"]))
    assert losses == pytest.approx([0.64, 0.64])  # from -0.4 only to -0.2, and the target is 0.6


def test_kl_is_schulmans_estimator(make_learner: Callable[..., Any]) -> None:
    """The mean of r - 1 - log r over valid rows, never below 0, and 0 before the policy changes."""
    learner = make_learner("ppo", "Chain")
    batch = random_samples("Chain", 6, torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0]))
    with torch.no_grad():
        now = torch.stack([distribution(learner.policy, batch.obs[i]).log_prob(batch.action[i]) for i in range(6)])
    batch.extras["log_prob"] = now.clone()
    assert learner.kl(batch, learner.loss(batch, learner.config)[1]) == pytest.approx(0.0, abs=1e-6)
    batch.extras["log_prob"] = now - torch.tensor([0.5, 9.0, -0.3, 0.1, 0.0, -9.0])
    moved = [0.5, -0.3, 0.1, 0.0]
    by_hand = sum(math.exp(x) - 1 - x for x in moved) / 4
    assert learner.kl(batch, learner.loss(batch, learner.config)[1]) == pytest.approx(by_hand, rel=1e-4)


def test_ppo_reports_clip_fraction_and_explained_variance(make_learner: Callable[..., Any]) -> None:
    """One minibatch with the whole rollout; another policy acted in two of its eight rows."""
    learner = make_learner("ppo", "Chain", n_steps=8, batch_size=8, n_epochs=1, clip_range=0.2)
    rollout, clock = collect(learner, 8)
    rollout.extras["log_prob"][[1, 5]] += 0.5  # ratios of 0.61; the others are 1
    samples, _ = learner.advantages(rollout, learner.config)
    advantage, target = samples.advantage.numpy(), samples.target.numpy()
    metrics = learner.update(rollout, clock).metrics
    assert float(metrics["loss/clip_fraction"]) == pytest.approx(0.25)
    assert metrics["loss/explained_variance"] == pytest.approx(1 - np.var(advantage) / np.var(target), rel=1e-4)
    assert "log_ratio" not in metrics


@pytest.mark.parametrize("algorithm", ["a2c", "trpo"])
def test_explained_variance_is_reported(make_learner: Callable[..., Any], algorithm: str) -> None:
    learner = make_learner(algorithm, "Chain", n_steps=8)
    rollout, clock = collect(learner, 8)
    value, next_value = learner.predict_values(rollout)
    advantage, target = rl.gae(rollout, value, next_value, learner.config.gamma, learner.config.gae_lambda)
    explained_variance = learner.update(rollout, clock).metrics["loss/explained_variance"]
    assert explained_variance == pytest.approx(1 - np.var(advantage) / np.var(target), rel=1e-4)


@pytest.mark.parametrize(("limit", "updates"), [(None, 12), (1e9, 12), (1e-12, 3)])
def test_target_kl_ends_the_epochs(make_learner: Callable[..., Any], limit: float | None, updates: int) -> None:
    """Four epochs of three minibatches; with a limit that any change exceeds, one epoch."""
    learner = make_learner("ppo", "Chain", n_steps=12, batch_size=4, n_epochs=4, target_kl=limit, learning_rate=1e-2)
    rollout, clock = collect(learner, 12)
    learner.update(rollout, clock)
    assert learner.optimizers[0].state["steps"] == updates


@pytest.mark.parametrize(("desired", "signs"), [(0.004, {-1, 0, 1}), (1e-9, {-1}), (1e3, {1})])
def test_learning_rate_follows_the_kl_divergence(
    make_learner: Callable[..., Any], desired: float, signs: set[int]
) -> None:
    """Weights equal those of a learner that gets the rate by hand before each update."""
    options = {"n_steps": 12, "batch_size": 4, "n_epochs": 4, "learning_rate": 3e-4, "anneal_lr": False}
    learner = make_learner("ppo", "Chain", desired_kl=desired, **options)
    plain = make_learner("ppo", "Chain", **options)
    rollout, clock = collect(learner, 12)
    rate = 3e-4
    changes = set()
    for _ in range(30):
        plain.optimizers[0].rate = rate
        kl = float(plain.update(rollout, clock).metrics["loss/kl"])
        learner.update(rollout, clock)
        change = 0
        if kl > desired * 2:
            change = -1
            rate = max(rate / 1.5, 1e-5)
        elif 0 < kl < desired / 2:
            change = 1
            rate = min(rate * 1.5, 1e-2)
        changes.add(change)
    assert changes == signs
    assert 3e-4 * learner.optimizers[0].factor == pytest.approx(rate)
    for ours, theirs in zip(learner.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_desired_kl_needs_several_gradient_steps(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="desired_kl needs several gradient steps per rollout"):
        make_learner("ppo", "Chain", n_steps=12, batch_size=12, n_epochs=1, desired_kl=0.01)


def test_ppo_update_equals_the_reference_on_shuffled_minibatches(make_learner: Callable[..., Any]) -> None:
    """Two epochs of three minibatches with the learner's generator: each row once per epoch."""
    options = {
        "n_steps": 12,
        "batch_size": 4,
        "n_epochs": 2,
        "normalize_advantage": False,
        "gae_lambda": 1.0,
        "learning_rate": 1e-2,
    }
    learner = make_learner("ppo", "Chain", **options)
    probe = make_learner("ppo", "Chain", **options)
    rollout, clock = collect(learner, 12)
    value, advantage = returns_by_hand(learner, rollout, 12)
    obs = torch.from_numpy(rollout.obs[:12, 0])
    action = torch.from_numpy(rollout.action[:, 0])
    batch = samples(
        obs, action, advantage, advantage + value, log_prob=torch.from_numpy(rollout.extras["log_prob"][:, 0])
    )
    for i in range(12):
        log_prob = distribution(learner.policy, batch.obs[i]).log_prob(batch.action[i])
        torch.testing.assert_close(batch.extras["log_prob"][i], log_prob.detach(), msg="what the actor sent")
    learner.update(rollout, clock)
    for _ in range(2):
        order = probe.generator.permutation(12)
        assert sorted(order) == list(range(12))
        for start in (0, 4, 8):
            picked = batch.take(torch.from_numpy(order[start : start + 4]))
            probe.optimizers[0].minimize(reference(probe, picked), clock, steps_ago=12)
    torch.testing.assert_close(learner.optimizers[0].flat, probe.optimizers[0].flat, rtol=1e-3, atol=1e-5)


def test_a2c_update_is_one_gradient_step_on_n_step_returns(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("a2c", "Chain", n_steps=8, gae_lambda=1.0)
    probe = make_learner("a2c", "Chain", n_steps=8, gae_lambda=1.0)
    rollout, clock = collect(learner, 8)
    value, advantage = returns_by_hand(learner, rollout, 8)
    obs = torch.from_numpy(rollout.obs[:8, 0])
    action = torch.from_numpy(rollout.action[:, 0])
    batch = samples(obs, action, advantage, advantage + value)
    learner.update(rollout, clock)
    probe.optimizers[0].minimize(reference(probe, batch), clock, steps_ago=8)
    torch.testing.assert_close(learner.optimizers[0].flat, probe.optimizers[0].flat, rtol=1e-4, atol=1e-6)


@for_each("standardize", [False, True])
@for_each("algorithm", POLICIES)
def test_rows_of_weight_0_change_no_gradient(
    make_learner: Callable[..., Any], algorithm: str, standardize: bool
) -> None:
    """Neither their content nor their presence matters."""
    learner = make_learner(algorithm, "Chain", n_steps=2, normalize_advantage=standardize, ent_coef=0.1)
    weight = torch.tensor([1.0, 0.0, 1.0, 2.0, 0.0, 0.5])
    batch = random_samples("Chain", 6, weight)
    other = random_samples("Chain", 6, weight)
    kept = batch.take(torch.tensor([0, 2, 3, 5]))
    garbage = batch.map(lambda tensor: tensor.clone())
    for name in ("obs", "action", "advantage", "target"):
        getattr(garbage, name)[weight == 0] = 7 * getattr(other, name)[weight == 0] if name != "action" else 1
    garbage.extras["log_prob"][weight == 0] = -9.0
    first, second, third = (gradients(learner, learner.loss(b, learner.config)[0]) for b in (batch, garbage, kept))
    for a, b, c in zip(first, second, third, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)
    assert any(bool(gradient.any()) for gradient in first)


@pytest.mark.parametrize("algorithm", POLICIES)
def test_weights_keep_their_scale(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Twice the weight is twice the gradient: importance weights are never divided by their sum."""
    learner = make_learner(algorithm, "Chain", normalize_advantage=False)
    once = random_samples("Chain", 5, torch.full((5,), 0.25))
    twice = replace(once, weight=once.weight * 2, share=None)
    pairs = zip(
        gradients(learner, learner.loss(once, learner.config)[0]),
        gradients(learner, learner.loss(twice, learner.config)[0]),
        strict=True,
    )
    for single, double in pairs:
        torch.testing.assert_close(double, 2 * single)


@pytest.mark.parametrize("algorithm", [name for name in POLICIES if name != "vpg"])  # its rollouts have any length
def test_rows_of_weight_0_change_no_update(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Through targets, minibatches and optimizer: an invalid row may contain any finite number."""
    options = {"n_steps": 12} | ({"batch_size": 4, "n_epochs": 2} if algorithm == "ppo" else {})
    weights = []
    for filling in (0.0, 5.0):
        learner = make_learner(algorithm, "Chain", **options)
        rollout, clock = collect(learner, 12)
        after_end = int(np.flatnonzero(rollout.terminated[:-1, 0])[0]) + 1
        rollout.weight[after_end] = 0
        rollout.whole = False
        rollout.obs[after_end] = filling
        rollout.reward[after_end] = filling
        rollout.action[after_end] = filling > 0
        learner.update(rollout, clock)
        weights.append(learner.optimizers[0].flat.clone())
    assert torch.equal(*weights)


def returns_by_hand(learner: Any, rollout: Any, steps: int) -> tuple[Tensor, Tensor]:
    """Return values and advantages of bootstrapped returns for one row of Chain without truncation, step by step."""
    assert not rollout.truncated.any()
    with torch.no_grad():
        value = torch.stack([learner.critic(torch.from_numpy(rollout.obs[t]))[0] for t in range(steps + 1)])
    returns = torch.zeros(steps)
    following = value[steps]
    for t in reversed(range(steps)):
        following = torch.tensor(0.0) if rollout.terminated[t, 0] else following
        returns[t] = following = float(rollout.reward[t, 0]) + learner.config.gamma * following
    return value[:steps], returns - value[:steps]


def collect(learner: Any, steps: int) -> tuple[Any, Clock]:
    """Return the learner's first rollout on Chain, one row, with at least one end before its last step."""
    clock = Clock(100)
    buffer = learner.buffer()
    actor = Actor(Chain(1), learner, learner.agent(), buffer, clock)
    actor.reset(0)
    for _ in range(steps):
        step = actor.step()
        buffer.add(step)
    (rollout,) = buffer.batches(clock)
    return rollout, clock
