"""A2C, A3C, IMPALA and n-step Q-learning with replay of rollouts: weights and number of old rollouts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.learning.estimators import gae
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing.envs import Chain
from tests.algos.test_lag import rollout_of, slow_vtrace
from tests.algos.test_learning import A2C

SMALL = {"n_steps": 6, "net.hidden": [8], "replay_ratio": 2.0, "gae_lambda": 0.8}


def test_new_rollout_has_the_advantages_of_a2c(make_learner: Callable[..., Any]) -> None:
    """All ratios are 1, and V-trace with lambda 1 is GAE."""
    learner = make_learner("a2c", "Chain", **{**SMALL, "gae_lambda": 1.0})
    rollout = rollout_of(learner)
    plain = gae(rollout, *learner.predict_values(rollout), learner.config.gamma, 1.0)
    for actual, expected in zip(learner.advantages(rollout, learner.config), plain, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_old_rollout_is_weighed_by_v_trace(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("a2c", "Chain", **SMALL)
    rollout = rollout_of(learner)
    shift = np.linspace(-1, 1, rollout.reward.size, dtype=np.float32).reshape(rollout.reward.shape)
    rollout.extras["log_prob"] += shift
    value, successor = learner.predict_values(rollout)
    advantage, _ = learner.advantages(rollout, learner.config)
    config = SimpleNamespace(gamma=learner.config.gamma, vtrace_lambda=0.8)
    for row in range(rollout.reward.shape[1]):
        expected = slow_vtrace(rollout, row, value, successor, np.exp(-shift), config)
        assert advantage[:, row].tolist() == pytest.approx(expected, abs=1e-4)


def test_agents_send_no_extras_without_replay(make_learner: Callable[..., Any]) -> None:
    assert rollout_of(make_learner("a2c", "Chain", n_steps=6)).extras == {}


@pytest.mark.parametrize("name", ["a2c", "impala", "nstep-q"])
def test_number_of_old_rollouts_follows_the_ratio(train_runner: Callable[..., Any], name: str) -> None:
    """400 new rollouts, and three times as many old ones; their number is Poisson distributed."""
    options = {"runner": "sync", "num_envs": 1, "n_steps": 5, "total_timesteps": 2_000, "net.hidden": [4]}
    both = train_runner(name, "Chain", **options, replay_ratio=3.0).clock.updates
    alone = train_runner(name, "Chain", **options, replay_ratio=3.0, replay_only=True).clock.updates
    assert both == alone + 400
    assert alone == pytest.approx(1_200, abs=5 * 1_200**0.5)


@pytest.mark.parametrize("name", ["a2c", "impala", "nstep-q"])
def test_replay_only_without_replay_raises(make_learner: Callable[..., Any], name: str) -> None:
    with pytest.raises(UsageError, match=r"replay_only leaves nothing to learn from .* give --replay-ratio 4 too"):
        make_learner(name, "Chain", replay_only=True).buffer()


def test_rewards_in_order_conflict_with_replay(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="leave out normalize_reward or replay_ratio"):
        make_learner("a2c", "Chain", replay_ratio=1.0, normalize_reward=True)


@pytest.mark.parametrize("only", [False, True])
def test_a3c_learns_the_chain_with_replay(train_runner: Callable[..., Any], only: bool) -> None:
    options = {**A2C, "workers": 2, "num_envs": 4, "inline": True, "total_timesteps": 8_000, "buffer_size": 400}
    runner = train_runner("a3c", "Chain", **options, replay_ratio=2.0, replay_only=only)
    assert evaluate(runner.snapshot().agent(), Chain(50), 1, Clock(1)).mean == 1


@pytest.mark.parametrize("name", ["a3c", "impala"])
def test_workers_draw_different_rollouts(train_runner: Callable[..., Any], name: str) -> None:
    """Each worker has its own buffer and generator; actors share one."""
    options = {"inline": True, "num_envs": 1, "n_steps": 4, "total_timesteps": 400, "replay_ratio": 2.0}
    runner = train_runner(name, "Chain", **options, **({"workers": 2} if name == "a3c" else {"actors": 2}))
    if name == "a3c":
        states = [worker.actor.buffer.state_dict()["generator"]["state"] for worker in runner.workers]
        assert states[0] != states[1]
    else:
        assert set(runner.buffer.incoming) == {0, 1}
        assert runner.buffer.count == 100 - 3  # as many chunks wait as the lag allows


def test_gradient_uses_the_weight_of_an_old_action(make_learner: Callable[..., Any]) -> None:
    """An action with half of its old probability has weight 0.5."""
    learner = make_learner("a2c", "Chain", **{**SMALL, "n_steps": 1, "gamma": 0.0, "ent_coef": 0.0, "vf_coef": 0.0})
    rollout = rollout_of(learner)
    rollout.reward[:] = 1.0
    plain = learner.advantages(rollout, learner.config)[0]
    rollout.extras["log_prob"] += np.float32(np.log(2))
    np.testing.assert_allclose(learner.advantages(rollout, learner.config)[0], 0.5 * plain, rtol=1e-4)
    assert torch.isfinite(torch.from_numpy(plain)).all()
