"""PPO with memory: loss and update on whole rows, compared with single rows and steps; and tasks of recall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from rlplug_core.acting.recurrent import MemoryAgent
from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.errors import BadConfig
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing.envs import LongRecall, Recall
from rlplug_core.types import Array, tree_map
from tests.algos.losses import gradients
from tests.reference.memory import Random, unroll_by_loops, values_by_loops

RANDOM = f"{Random.__module__}:{Random.__name__}"
#: A learner with all parts of the loss, for rollouts of eight steps.
SMALL = {
    "n_steps": 8,
    "batch_size": 24,
    "n_epochs": 1,
    "ent_coef": 0.3,
    "vf_coef": 0.7,
    "recurrent_hidden_size": 5,
    "net.hidden": [6],
    "learning_rate": 1e-2,
}


@pytest.fixture(params=["gru", "lstm"])
def memory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rollouts(learner: Any, env: Any, count: int) -> Iterator[tuple[Rollout, Clock]]:
    """Yield `count` rollouts; in the first one every row starts without memory."""
    buffer = learner.buffer()
    actor = Actor(env, learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    for _ in range(count * learner.config.n_steps):
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(actor.clock):
            yield rollout, actor.clock


def advantages(learner: Any, rollout: Rollout) -> tuple[Array, Array]:
    """Return GAE and value targets [T, N] by recursion in each row; absent rows pass on the next value."""
    c = learner.config
    value, successor = values_by_loops(rollout, learner.networks)
    advantage = np.zeros_like(value)
    for row in range(value.shape[1]):
        running = 0.0
        following = successor[-1, row]
        for step in reversed(range(len(value))):
            if rollout.weight[step, row] == 0:
                continue
            ended = rollout.terminated[step, row] or rollout.truncated[step, row]
            after = successor[step, row] if ended else following
            after = 0.0 if rollout.terminated[step, row] else after
            delta = rollout.reward[step, row] + c.gamma * after - value[step, row]
            running = delta + (0.0 if ended else c.gamma * c.gae_lambda * running)
            advantage[step, row] = running
            following = value[step, row]
    return advantage, advantage + value


def reference(learner: Any, rollout: Rollout, num_envs: list[int], advantage: Array, target: Array) -> Tensor:
    """Return the loss of these rows, sample by sample."""
    c, policy = learner.config, learner.policy
    steps = len(rollout.reward)
    losses = []
    features = policy.encoder(torch.from_numpy(rollout.obs[:steps].reshape(-1, 3))).unflatten(0, (steps, -1))
    before = tree_map(torch.from_numpy, rollout.recurrent_state)
    remembered = unroll_by_loops(policy.memory, features, rollout.is_first, rollout.weight > 0, before)
    for row in num_envs:
        for step in np.flatnonzero(rollout.weight[:, row]):
            after = {part: remembered[part][step][row] for part in policy.memory.parts}
            over = Categorical(logits=policy.policy.outputs(after["h"]))
            old = float(rollout.extras["log_prob"][step, row])
            ratio = (over.log_prob(torch.tensor(rollout.action[step, row])) - old).exp()
            gain = float(advantage[step, row])
            bounded = ratio.clamp(1 - c.clip_range, 1 + c.clip_range)
            error = (learner.critic(after) - float(target[step, row])) ** 2
            losses.append(-torch.min(ratio * gain, bounded * gain) + c.vf_coef * error - c.ent_coef * over.entropy())
    return torch.stack(losses).mean()


def test_loss_and_gradient_equal_the_reference(make_learner: Callable[..., Any], memory: str) -> None:
    """Rollouts with truncations, terminations and absent rows; the later ones start within episodes."""
    learner = make_learner("ppo", RANDOM, recurrent_cell=memory, normalize_advantage=False, **SMALL)
    seen = np.zeros(3)
    for rollout, _ in rollouts(learner, Random(3), 4):
        batch, explained = learner.advantages(rollout, learner.config)
        advantage, target = advantages(learner, rollout)
        counts = (rollout.weight > 0).ravel()
        target_variance = np.var(target.ravel()[counts])
        assert explained == pytest.approx(1 - np.var(advantage.ravel()[counts]) / target_variance, abs=1e-4)
        for actual, expected in ((batch.advantage, advantage), (batch.target, target)):
            np.testing.assert_allclose(actual.numpy()[counts], expected.ravel()[counts], atol=1e-5)
        loss = learner.loss(batch, learner.config)[0]
        slow = reference(learner, rollout, [0, 1, 2], advantage, target)
        torch.testing.assert_close(loss, slow)
        for one, other in zip(gradients(learner, loss), gradients(learner, slow), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
        seen += [rollout.truncations.count, rollout.terminated[:-1].sum(), (~counts).sum()]
    assert (seen > 0).all()


def test_clipped_loss_equals_the_reference(make_learner: Callable[..., Any], memory: str) -> None:
    """After large changes of the weights, which one epoch does not reach, many ratios are clipped."""
    learner = make_learner("ppo", RANDOM, recurrent_cell=memory, normalize_advantage=False, **SMALL)
    ((rollout, _),) = rollouts(learner, Random(3), 1)
    batch, _ = learner.advantages(rollout, learner.config)
    advantage, target = advantages(learner, rollout)
    with torch.no_grad():
        learner.optimizers[0].flat.add_(torch.randn_like(learner.optimizers[0].flat))
    loss = learner.loss(batch, learner.config)[0]
    slow = reference(learner, rollout, [0, 1, 2], advantage, target)
    torch.testing.assert_close(loss, slow)
    assert float(learner.kl(batch, learner.loss(batch, learner.config)[1])) > 0.05


def test_update_equals_the_reference_on_whole_rows_in_random_order(
    make_learner: Callable[..., Any], memory: str
) -> None:
    """Two epochs of three rows, two at a time with the learner's generator; the last row is a batch of its own."""
    options = {**SMALL, "recurrent_cell": memory, "batch_size": 20, "n_epochs": 2, "normalize_advantage": False}
    learner = make_learner("ppo", RANDOM, **options)
    probe = make_learner("ppo", RANDOM, **options)
    for rollout, clock in rollouts(learner, Random(3), 2):
        estimates = advantages(probe, rollout)
        learner.update(rollout, clock)
        for _ in range(2):
            chosen = probe.generator.permutation(3)[:2].tolist()
            probe.optimizers[0].minimize(reference(probe, rollout, chosen, *estimates), clock, steps_ago=24)
        torch.testing.assert_close(learner.optimizers[0].flat, probe.optimizers[0].flat, rtol=1e-3, atol=1e-5)


def test_values_of_absent_rows_change_no_update(make_learner: Callable[..., Any], memory: str) -> None:
    """Also within episodes: two learners that differ in them are equal bit for bit after four updates."""
    weights = []
    for filling in (0.0, 9.0):
        learner = make_learner("ppo", RANDOM, recurrent_cell=memory, **{**SMALL, "batch_size": 16, "n_epochs": 2})
        for rollout, clock in rollouts(learner, Random(3, filling=filling), 4):
            assert not rollout.whole
            learner.update(rollout, clock)
        weights.append(learner.optimizers[0].flat.clone())
    assert torch.equal(*weights)


def test_ppo_recurrent_is_ppo_with_two_options(make_learner: Callable[..., Any]) -> None:
    named = make_learner("ppo-recurrent", "Chain")
    switched = make_learner("ppo", "Chain", memory="gru", normalize_reward=True)
    plain = make_learner("ppo", "Chain")
    assert named.config == switched.config
    assert isinstance(named.agent(), MemoryAgent)
    assert not isinstance(plain.agent(), MemoryAgent)
    assert torch.equal(named.optimizers[0].flat, switched.optimizers[0].flat)


def test_minibatch_smaller_than_a_row_raises_one_sentence(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(BadConfig) as caught:
        make_learner("ppo", "Chain", recurrent_cell="lstm", n_steps=64, batch_size=63)
    assert str(caught.value) == (
        "with a memory minibatches are made of whole sequences, and one of 63 samples has no room for a "
        "sequence of 64 steps; give --batch-size 64 or more, or --n-steps 63 or fewer"
    )


#: Options for this small task: whole episodes in each row.
QUICK = {"num_envs": 32, "n_steps": 24, "batch_size": 768, "learning_rate": 3e-3, "total_timesteps": 8_192}


def recall_rate(train_runner: Callable[..., Any], env: type[Recall], **options: Any) -> float:
    """Return the share of right answers after training."""
    runner = train_runner("ppo", env.__name__, **{**QUICK, **options})
    return evaluate(runner.snapshot().agent(), env(200), 1, Clock(1)).mean


def test_without_memory_the_cue_is_forgotten(train_runner: Callable[..., Any]) -> None:
    assert 0.4 < recall_rate(train_runner, LongRecall) < 0.6


def test_gru_recalls_a_cue_after_ten_steps(train_runner: Callable[..., Any]) -> None:
    assert recall_rate(train_runner, LongRecall, recurrent_cell="gru") > 0.95


def test_lstm_recalls_a_cue(train_runner: Callable[..., Any]) -> None:
    assert (
        recall_rate(train_runner, Recall, recurrent_cell="lstm", n_steps=10, batch_size=160, total_timesteps=4_096)
        > 0.95
    )
