"""ACER: targets, gradient and trust region, by hand and by definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Rollout, Samples, Truncations
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing import envs
from tests.algos.test_learning import ACER
from tests.reference import returns
from tests.reference.returns import Moment

FAR = 1e9


def bandit(make_learner: Callable[..., Any], logits: Tensor, values: Tensor, **options: Any) -> Any:
    """Make a learner with this policy and these action values, and the same logits for the average policy."""
    learner = make_learner("acer", "Bandit", ent_coef=0.0, vf_coef=0.0, **{"net.hidden": [], **options})
    with torch.no_grad():
        for layer, bias in (
            (learner.policy.outputs, logits),
            (learner.average_policy.outputs, logits),
            (learner.q_network.advantage.linears[-1], values),
        ):
            layer.weight.zero_()
            layer.bias.copy_(bias)
    return learner


def sample_of(action: int, advantage: float, behavior: Tensor, target: float = 0.0) -> Samples:
    extras = {"outputs": behavior.log().unsqueeze(0)}
    return Samples(
        torch.ones(1),
        None,
        torch.ones(1, 1),
        torch.tensor([action]),
        torch.tensor([advantage]),
        torch.tensor([target]),
        extras,
    )


def gradient(learner: Any, batch: Samples) -> Tensor:
    (bias_gradient,) = torch.autograd.grad(learner.loss(batch, learner.config)[0], learner.policy.outputs.bias)
    return bias_gradient


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("advantage", [-2.0, 3.0])
def test_on_policy_gradient_is_the_policy_gradient(
    make_learner: Callable[..., Any], action: int, advantage: float
) -> None:
    """With a ratio of 1 nothing is truncated or corrected: (π - 1_a) · A."""
    logits = torch.tensor([0.3, -0.4])
    learner = bandit(make_learner, logits, torch.zeros(2), trust_region_delta=FAR)
    pi = logits.softmax(0)
    expected = (pi - torch.eye(2)[action]) * advantage
    torch.testing.assert_close(gradient(learner, sample_of(action, advantage, pi)), expected)


@pytest.mark.parametrize("action", [0, 1])
def test_truncation_is_corrected_by_the_expectation_over_actions(make_learner: Callable[..., Any], action: int) -> None:
    """Equation 9: min(c, ρ) ∇log π(a) A + Σ_b π(b) (1 - c/ρ(b))⁺ ∇log π(b) (Q(b) - V), negated."""
    logits = torch.tensor([0.8, -0.2])
    values = torch.tensor([1.0, 2.5])
    c = 2.0
    learner = bandit(make_learner, logits, values, max_importance_weight=c, trust_region_delta=FAR)
    pi = logits.softmax(0)
    mu = torch.tensor([0.2, 0.8])
    advantage = 1.7
    value = float(pi @ values)

    def of(b: int) -> Tensor:
        return torch.eye(2)[b] - pi  # ∇ log π(b) in the logits

    expected = min(c, float(pi[action] / mu[action])) * of(action) * advantage
    for b in range(2):
        expected = expected + pi[b] * max(0.0, 1 - c * float(mu[b] / pi[b])) * of(b) * (values[b] - value)
    assert float(pi[0] / mu[0]) > c
    torch.testing.assert_close(gradient(learner, sample_of(action, advantage, mu)), -expected)


@pytest.mark.parametrize("region", [0.0, 0.3, 1.0])
def test_trust_region_bounds_the_push_from_the_average_policy(make_learner: Callable[..., Any], region: float) -> None:
    """Equation 12: kᵀz <= δ with k the gradient of KL(average || π) in the probabilities, by autograd."""
    logits = torch.tensor([0.8, -0.2])
    learner = bandit(make_learner, logits, torch.tensor([0.0, 0.0]), trust_region_delta=max(region, 1e-9))
    with torch.no_grad():
        learner.average_policy.outputs.bias.copy_(torch.tensor([0.0, 0.9]))
    probs = logits.softmax(0).requires_grad_()
    average = learner.average_policy.outputs.bias.softmax(0)
    (slope,) = torch.autograd.grad((average * (average / probs).log()).sum(), probs)
    for advantage in (-5.0, 5.0):
        batch = sample_of(0, advantage, logits.softmax(0))
        free = torch.eye(2)[0] * advantage / probs.detach()
        result = learner.trust_region_gradient(batch, probs.detach().unsqueeze(0), torch.zeros(1, 2), learner.config)[0]
        assert float(slope @ result) <= region + 1e-4
        wanted = free - max(0.0, float(slope @ free - region) / float(slope @ slope)) * slope
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)


def collect(learner: Any, env: envs.Vector) -> Rollout:
    clock = Clock(10_000)
    buffer = learner.buffer()
    actor = Actor(env, learner, learner.agent(), buffer, clock)
    actor.reset(0)
    while True:
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(clock):
            return rollout  # type: ignore[no-any-return]


def number(values: Tensor, at: int) -> float:
    return float(values[at])


def test_targets_equal_retrace_by_definition(make_learner: Callable[..., Any]) -> None:
    """On a chain of another policy, with truncations; per row, with torch's softmax."""
    behaved = make_learner("acer", "Chain", n_steps=40)
    learner = make_learner("acer", "Chain", n_steps=40, seed=5)
    rollout = collect(behaved, envs.Chain(2))
    assert rollout.terminated.any()
    assert not rollout.terminated[3, 0]
    rollout.truncated[3, 0] = True
    rollout.truncations = Truncations(rollout.obs[20, 1:], np.array([3 * 2]), 1)
    target = learner.retrace_targets(rollout, learner.config).target.reshape(40, 2)
    for row in range(2):
        obs = torch.from_numpy(np.concatenate([rollout.obs[:, row], rollout.truncations.obs[:1]]))
        with torch.no_grad():
            pi = learner.policy(obs).softmax(-1)
            q = learner.q_network(obs)
            mu = torch.from_numpy(rollout.extras["outputs"][:, row]).softmax(-1)
        state = (pi * q).sum(-1)
        action = torch.from_numpy(rollout.action[:, row])
        chosen = q[:40].gather(1, action[:, None])[:, 0]
        ratio = (pi[:40].gather(1, action[:, None]) / mu.gather(1, action[:, None]))[:, 0]
        moments = [
            Moment(
                t,
                float(rollout.reward[t, row]),
                41 if rollout.truncated[t, row] else t + 1,
                bool(rollout.terminated[t, row]),
                bool(rollout.truncated[t, row]),
                True,
            )
            for t in range(40)
        ]
        functions = [partial(number, part) for part in (state, chosen, ratio)]
        wanted = returns.retrace(moments, *functions, 0.99, 1.0)
        for t, expected in wanted.items():
            assert float(target[t, row]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_agent_sends_its_logits(make_learner: Callable[..., Any]) -> None:
    """The ratio of a batch is 1 while the policy is unchanged."""
    learner = make_learner("acer", "Masked", n_steps=6)
    rollout = collect(learner, envs.Masked(3))
    batch = learner.retrace_targets(rollout, learner.config)
    with torch.no_grad():
        torch.testing.assert_close(batch.extras["outputs"], learner.policy(batch.obs), rtol=1e-4, atol=1e-5)
    gradient = learner.trust_region_gradient(
        batch, learner.policy(batch.obs).softmax(-1).detach(), learner.q_network(batch.obs).detach(), learner.config
    )
    assert bool(torch.isfinite(gradient).all())


def test_average_policy_follows_slowly(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("acer", "Chain", average_policy_decay=0.75, learning_rate=0.01)
    before = [parameter.clone() for parameter in learner.average_policy.parameters()]
    learner.update(collect(learner, envs.Chain(2)), Clock(10_000))
    for old, new, average in zip(before, learner.policy.parameters(), learner.average_policy.parameters(), strict=True):
        torch.testing.assert_close(average, 0.75 * old + 0.25 * new)
        assert not torch.equal(average, old)


def test_capacity_and_start_count_env_steps(make_learner: Callable[..., Any]) -> None:
    """Two rows of 10 steps are 20 env steps: 110 store five rollouts, and replay starts with the third."""
    learner = make_learner("acer", "Chain", n_steps=10, buffer_size=110, learning_starts=41)
    learner.spec = envs.Chain(2).spec
    buffer = learner.buffer()
    assert (buffer.capacity, buffer.start) == (5, 3)


#: Many updates on replayed rollouts, with all sources of randomness.
SMALL: dict[str, Any] = {
    "num_envs": 2, "n_steps": 5, "buffer_size": 100, "learning_starts": 20, "replay_ratio": 1.5, "net.hidden": [8],
    "total_timesteps": 400,
}  # fmt: skip
SINGLE = {
    "async": {"runner": "async", "inline": True, "workers": 1},
    "decoupled": {"runner": "decoupled", "inline": True, "actors": 1, "max_lag": 0},
}


@pytest.mark.parametrize("runner", SINGLE)
@pytest.mark.parametrize(("name", "env"), [("acer", "Chain"), ("acer", "Masked"), ("acer-continuous", "Continuous")])
def test_all_runners_equal_sync(train_runner: Callable[..., Any], name: str, env: str, runner: str) -> None:
    """With one worker, or without a lag: policy, values, average policy and the learner's generator are equal."""
    sync, other = (train_runner(name, env, **{**SMALL, **more}) for more in ({"runner": "sync"}, SINGLE[runner]))
    assert sync.clock.updates == other.clock.updates > 60
    sample_of, two = (learner.snapshot().state_dict() for learner in (sync, other))
    assert {key for key in sample_of if key.startswith("average_policy")}
    for key, tensor in sample_of.items():
        if isinstance(tensor, Tensor):
            assert torch.equal(tensor, two[key]), key
    mine = other.workers[0].learner if runner == "async" else other.learner
    assert sync.learner.generator.bit_generator.state == mine.generator.bit_generator.state


def test_workers_share_one_average_policy(train_runner: Callable[..., Any]) -> None:
    runner = train_runner("acer", "Chain", **{**SMALL, "runner": "async", "inline": True, "workers": 3})
    averages = [worker.learner.average_policy.outputs.weight for worker in runner.workers]
    assert len({tensor.data_ptr() for tensor in averages}) == 1
    draws = [worker.actor.buffer.generator.bit_generator.state["state"]["state"] for worker in runner.workers]
    assert len(set(draws)) == 3


@pytest.mark.parametrize(
    "options",
    [{"runner": "async", "workers": 2}, pytest.param({"runner": "decoupled", "actors": 2}, marks=pytest.mark.slow)],
)
def test_processes_learn_the_chain(train_runner: Callable[..., Any], options: dict[str, Any]) -> None:
    runner = train_runner("acer", "Chain", **{**ACER, **options, "num_envs": 4, "total_timesteps": 8_000})
    try:
        assert evaluate(runner.snapshot().agent(), envs.Chain(50), 1, Clock(1)).mean == 1
    finally:
        runner.close()
