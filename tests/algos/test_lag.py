"""IMPALA and APPO on rollouts of another policy, compared with the papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.batches import Rollout, Samples
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.testing.envs import Chain

SMALL = {"num_envs": 4, "n_steps": 8, "total_timesteps": 640, "net.hidden": [16]}
PLAIN = {"ent_coef": 0.0, "vf_coef": 0.0, "net.hidden": [8], "n_steps": 6}


def rollout_of(learner: Any, num_envs: int = 3) -> Rollout:
    """Return a rollout of the learner's own policy."""
    env = Chain(num_envs)
    buffer = learner.buffer()
    actor = Actor(env, learner, learner.agent(), buffer, Clock(10_000))
    actor.reset(3)
    while True:
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(actor.clock):
            return rollout  # type: ignore[no-any-return]


def test_impala_without_lag_equals_a2c(train_runner: Callable[..., Any]) -> None:
    """All ratios are 1, except for rounding."""
    one = train_runner("a2c", "Chain", runner="sync", **SMALL).snapshot()
    other = train_runner("impala", "Chain", runner="sync", **SMALL).snapshot()
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def norm(learner: Any, rollout: Rollout) -> float:
    """Return the gradient norm of an update with a tiny step."""
    return float(learner.update(rollout, Clock(1)).metrics["loss/gradient_norm"])


@pytest.mark.parametrize(("ratio", "weight"), [(0.5, 0.5), (0.1, 0.1), (3.0, 1.0)])
def test_policy_gradient_is_weighted_by_rho(make_learner: Callable[..., Any], ratio: float, weight: float) -> None:
    """The last step of an episode has no trace after it: the gradient is rho times the one without a lag."""
    learner = make_learner("impala", "Chain", **{**PLAIN, "learning_rate": 1e-12, "n_steps": 1, "gamma": 0.0})
    rollout = rollout_of(learner)
    rollout.reward[:] = 1.0
    plain = norm(learner, rollout)
    rollout.extras["log_prob"] -= np.float32(np.log(ratio))  # the actor gave the actions a lower probability
    assert norm(learner, rollout) == pytest.approx(weight * plain, rel=1e-4)
    assert plain > 0.01


@pytest.mark.parametrize("normalize", [False, True])
def test_appo_uses_the_target_policy(make_learner: Callable[..., Any], normalize: bool) -> None:
    """Advantages and log-probabilities are those of the target policy, not of the actor or learner."""
    learner = make_learner("appo", "Chain", **PLAIN, normalize_advantage=normalize)
    rollout = rollout_of(learner)
    shape = rollout.reward.shape
    rollout.extras["log_prob"] += np.linspace(-1, 1, rollout.reward.size, dtype=np.float32).reshape(shape)
    for network, shift in ((learner.target_policy, 0.3), (learner.policy, -0.4)):
        with torch.no_grad():
            network.outputs.bias[0] += shift
    samples = learner.advantages(rollout, learner.config)
    with torch.no_grad():
        outputs = learner.target_policy(samples.obs)
        log_prob = learner.policy.head.log_prob(outputs, samples.action)
    torch.testing.assert_close(samples.extras["log_prob"], log_prob, rtol=1e-5, atol=1e-5)
    value, successor = learner.predict_values(rollout)
    ratio = np.exp(log_prob.numpy().reshape(rollout.reward.shape) - rollout.extras["log_prob"])
    rows = range(rollout.reward.shape[1])
    advantage = np.transpose([slow_vtrace(rollout, row, value, successor, ratio, learner.config) for row in rows])
    if normalize:  # the loss standardizes advantages, so a baseline does not matter
        rho = np.minimum(1, ratio)
        advantage = advantage - rho * advantage.sum() / rho.sum()
    np.testing.assert_allclose(samples.advantage.reshape(rollout.reward.shape), advantage, atol=1e-4)


def slow_vtrace(rollout: Rollout, row: int, value: Any, successor: Any, ratio: Any, config: Any) -> list[float]:
    """Return the sum of equation 1 for every step of a row."""
    steps = len(rollout.reward)
    td_errors = []
    ended = rollout.terminated | rollout.truncated

    def target(start: int) -> float:
        total = float(value[start, row])
        trace = 1.0
        for t in range(start, steps):
            bootstrap = 0.0 if rollout.terminated[t, row] else config.gamma * successor[t, row]
            delta = min(1.0, ratio[t, row]) * (rollout.reward[t, row] + bootstrap - value[t, row])
            total += config.gamma ** (t - start) * trace * delta
            trace *= config.vtrace_lambda * min(1.0, ratio[t, row])
            if ended[t, row]:
                break
        return total

    for t in range(steps):
        after = target(t + 1) if t + 1 < steps and not ended[t, row] else float(successor[t, row])
        bootstrap = 0.0 if rollout.terminated[t, row] else config.gamma * after
        weight = min(1.0, float(ratio[t, row]))
        td_errors.append(weight * (float(rollout.reward[t, row]) + bootstrap - float(value[t, row])))
    return td_errors


def test_appo_loss_is_the_clipped_surrogate(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("appo", "Chain", **{**PLAIN, "vf_coef": 0.5, "ent_coef": 0.1}, normalize_advantage=False)
    samples = learner.advantages(rollout_of(learner), learner.config)
    samples.extras["log_prob"] += torch.linspace(-0.6, 0.6, len(samples.weight))
    loss, _ = learner.loss(samples, learner.config)
    outputs = learner.policy(samples.obs).detach()
    entropy = learner.policy.head.entropy(outputs)
    log_prob = learner.policy.head.log_prob(outputs, samples.action)
    assert float(loss.detach()) == pytest.approx(
        surrogate(samples, log_prob, learner.critic(samples.obs).detach(), entropy), abs=1e-5
    )


def surrogate(samples: Samples, log_prob: Any, value: Any, entropy: Any) -> float:
    """Return the loss, sample by sample."""
    total = 0.0
    for i in range(len(samples.weight)):
        ratio = float(torch.exp(log_prob[i] - samples.extras["log_prob"][i]))
        advantage = float(samples.advantage[i])
        held = min(max(ratio, 0.8), 1.2)
        total += -min(ratio * advantage, held * advantage)
        total += 0.5 * float(value[i] - samples.target[i]) ** 2 - 0.1 * float(entropy[i])
    return total / len(samples.weight)


def test_target_policy_is_constant_between_copies(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("appo", "Chain", **PLAIN, target_update_interval=3, learning_rate=0.1, anneal_lr=False)
    clock = Clock(1000)
    seen = []
    policies = []
    for _ in range(7):
        policies.append(learner.policy.outputs.weight.detach().clone())
        learner.update(rollout_of(learner), clock)
        clock.updates += 1
        seen.append(learner.target_policy.outputs.weight.clone())
    for update, copied in enumerate((0, 0, 0, 3, 3, 3, 6)):
        assert torch.equal(seen[update], policies[copied])
    assert not torch.equal(policies[0], policies[3])
