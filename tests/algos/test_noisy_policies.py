"""Policies with noisy layers: losses use the noise of the actor, ACER one noise for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing.envs import Chain
from tests.algos.test_learning import A2C, ACER, PPO
from tests.tables import for_each

#: Options for noise, with rollouts of 6 steps.
NAMES: dict[str, dict[str, Any]] = {
    "a2c": {}, "a3c": {}, "ppo": {}, "impala": {}, "appo": {}, "acer": {"replay_ratio": 0.0},
}  # fmt: skip
NOISY = {"noisy": "factorized", "noisy_sigma": 2.0, "n_steps": 6, "net.hidden": [8], "max_grad_norm": 100.0}


def rollouts_of(learner: Any, count: int, num_envs: int = 3) -> list[Rollout]:
    """Return `count` rollouts of the learner's own policy, as its buffer returns them."""
    buffer = learner.buffer()
    rollouts = []
    actor = Actor(Chain(num_envs), learner, learner.agent(), buffer, Clock(10_000))
    actor.reset(3)
    while True:
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(Clock(10_000)):
            rollouts.append(rollout)
            if len(rollouts) == count:
                return rollouts
            break


def policy_at(learner: Any, rollout: Rollout, step: int, row: int) -> Categorical:
    """Return the policy of one row at one step, with its noise at that time."""
    noise = torch.from_numpy(learner.policy.draw(rollout.extras["noise"][step, row : row + 1]))
    with torch.no_grad():
        return Categorical(logits=learner.policy(torch.from_numpy(rollout.obs[step, row : row + 1]), noise))


@pytest.mark.parametrize("name", NAMES)
def test_each_environment_keeps_its_noise_for_a_rollout(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Chain", **NOISY, **NAMES[name])
    (rollout,) = rollouts_of(learner, 1)
    first = rollout.extras["noise"].copy()
    assert (first == first[0]).all()
    assert len(set(first[0])) == 3
    _, second = rollouts_of(learner, 2)
    assert not {*first[0]} & {*second.extras["noise"][0]}


@pytest.mark.parametrize("name", ["ppo", "impala", "appo"])
def test_log_probs_use_the_noise_of_the_actor(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Chain", **NOISY)
    (rollout,) = rollouts_of(learner, 1)
    for step, row in np.ndindex(6, 3):
        over = policy_at(learner, rollout, step, row)
        expected = float(over.log_prob(torch.tensor(rollout.action[step, row])))
        assert float(rollout.extras["log_prob"][step, row]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["ppo", "appo"])
def test_ratio_is_1_before_an_update(make_learner: Callable[..., Any], name: str) -> None:
    """The divergence is 0, too, in random minibatches of rows with different noise."""
    learner = make_learner(name, "Chain", **{**NOISY, "batch_size": 6, "n_epochs": 1, "learning_rate": 1e-12})
    result = learner.update(rollouts_of(learner, 1)[0], Clock(100))
    assert float(result.metrics["loss/kl"]) == pytest.approx(0, abs=1e-6)
    assert learner.describe_gradients() == "autograd: noise that differs between rows has no fast path"


@pytest.mark.parametrize("name", ["a2c", "impala"])
def test_loss_and_gradient_equal_the_policy_gradient_row_by_row(make_learner: Callable[..., Any], name: str) -> None:
    """The gradient of -log π(a | s, noise) A for the means and the scale of the noise."""
    options = {**NOISY, "ent_coef": 0.0, "vf_coef": 0.0, "learning_rate": 1e-12}
    learner = make_learner(name, "Chain", **options)
    (rollout,) = rollouts_of(learner, 1)
    rollout.reward[:] = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
    value, successor = learner.predict_values(rollout)
    wanted = torch.zeros(())
    for step, row in np.ndindex(6, 3):
        gain = 0.0
        t = step
        while True:  # rewards to the end of the episode or rollout
            gain += 0.99 ** (t - step) * float(rollout.reward[t, row])
            if rollout.terminated[t, row]:
                break
            if t == 5:
                gain += 0.99 ** (t - step + 1) * float(successor[t, row])
                break
            t += 1
        noise = torch.from_numpy(learner.policy.draw(rollout.extras["noise"][step, row : row + 1]))
        logits = learner.policy(torch.from_numpy(rollout.obs[step, row : row + 1]), noise)
        log_prob = Categorical(logits=logits).log_prob(torch.tensor(rollout.action[step, row]))
        wanted = wanted - log_prob.squeeze() * (gain - float(value[step, row])) / 18
    parameters = list(learner.policy.parameters())
    slow = torch.autograd.grad(wanted, parameters)
    kept = {}
    learner.actor_critic_optimizer.rule.step = lambda flat, gradient, state, lr: kept.update(all=gradient.clone())
    learner.update(rollout, Clock(100))
    gradient = kept["all"][: sum(one.numel() for one in parameters)]
    torch.testing.assert_close(gradient, torch.cat([one.flatten() for one in slow]), rtol=1e-3, atol=1e-5)
    sigma = dict(zip([key for key, _ in learner.policy.named_parameters()], slow, strict=True))
    assert float(sigma["outputs.layers.0.weight_sigma"].abs().sum()) > 0


def test_acer_uses_one_noise_and_weighs_by_the_actor(make_learner: Callable[..., Any]) -> None:
    """Policy and average policy use the learner's draw; the ratio compares with the outputs of the actor."""
    learner, again = (make_learner("acer", "Chain", **NOISY, learning_starts=0) for _ in range(2))
    (rollout,) = rollouts_of(learner, 1)
    samples = learner.retrace_targets(rollout, learner.config)
    noise = samples.extras["noise"]
    assert (noise == noise[0]).all()
    np.testing.assert_array_equal(again.policy.fresh_noise(again.generator), noise[0])
    for step, row in np.ndindex(6, 3):
        acted = torch.from_numpy(rollout.extras["outputs"][step, row])
        torch.testing.assert_close(policy_at(learner, rollout, step, row).probs[0], acted.softmax(-1))
    before = learner.generator.bit_generator.state
    losses = [float(learner.loss(samples, learner.config)[0].detach()) for _ in range(2)]
    assert losses[0] == losses[1]
    assert learner.generator.bit_generator.state == before


@pytest.mark.parametrize("name", NAMES)
def test_greedy_agent_has_no_noise(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Chain", **NOISY, **NAMES[name])
    agent = learner.agent()
    obs = np.eye(5, dtype=np.float32)
    agent.initial(5)
    before = agent.state_dict()["held"]["generator"]
    first = np.zeros(5, bool)
    memory = None
    greedy = agent.act(obs, first, memory, Clock(10), explore=False)
    with torch.no_grad():
        assert greedy.action.tolist() == learner.policy(torch.from_numpy(obs)).argmax(1).tolist()
    assert "noise" not in greedy.extras
    assert agent.state_dict()["held"]["generator"] == before


def test_agent_resumes_with_its_noise(make_learner: Callable[..., Any]) -> None:
    """Within a rollout, and with the next draw."""
    learner = make_learner("a2c", "Chain", **NOISY)
    obs = np.eye(5, dtype=np.float32)[:2]
    first = np.zeros(2, bool)

    def steps(agent: PolicyAgent, count: int) -> list[Any]:
        acts = [agent.act(obs, first, None, Clock(10)) for _ in range(count)]
        return [(act.action.tolist(), act.extras["noise"].tolist()) for act in acts]

    whole, other = learner.agent(), learner.agent()
    for agent in (whole, other):
        agent.initial(2)
    steps(whole, 4)
    other.load_state_dict(whole.state_dict())
    expected = steps(whole, 10)
    assert steps(other, 10) == expected
    assert len({tuple(noise) for _, noise in expected}) == 3


@pytest.mark.parametrize("name", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("a2c", "acer"))])
def test_noisy_policies_learn_the_chain(train_runner: Callable[..., Any], name: str) -> None:
    options = {"a2c": A2C, "ppo": PPO, "acer": ACER}[name]
    runner = train_runner(name, "Chain", **options, noisy="factorized")
    assert evaluate(runner.snapshot().agent(), Chain(50), 1, Clock(1)).mean == 1


@pytest.mark.parametrize("kind", [pytest.param("independent", marks=pytest.mark.slow), "factorized"])
def test_noisy_gaussian_finds_the_best_action(train_runner: Callable[..., Any], kind: str) -> None:
    learner = train_runner("a2c", "Continuous", **{**A2C, "total_timesteps": 20_000}, noisy=kind).snapshot()
    seen = torch.linspace(-0.9, 0.9, 7).reshape(-1, 1)
    with torch.no_grad():
        mean, _ = learner.policy(seen).chunk(2, -1)
    assert mean.ravel().tolist() == pytest.approx((seen.ravel() / 2).tolist(), abs=0.1)


def test_options_that_conflict_with_noise_raise(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="has no noisy layers; leave noisy or memory at none"):
        make_learner("ppo", "Chain", noisy="factorized", recurrent_cell="gru")
    with pytest.raises(UsageError, match=r"leave net\.output_gain at none"):
        make_learner("a2c", "Chain", noisy="factorized", **{"net.output_gain": 0.5})


@for_each("name", [*NAMES, "dqn", "c51", "qrdqn", "iqn", "nstep-q", "vqn", "vsarsa"])
def test_noise_options_without_noise_raise(make_learner: Callable[..., Any], name: str) -> None:
    with pytest.raises(UsageError, match="noisy_sigma needs noisy layers; give --noisy factorized or independent too"):
        make_learner(name, "Chain", noisy_sigma=0.3)
