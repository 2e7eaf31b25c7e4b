"""Observations, rewards and values of any scale are learned, but only with the options for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.plugins import make_env
from rlplug_core.runs.api import load, train
from rlplug_core.testing import checks
from tests.algos.test_conformance import failures

HERE = Path(__file__).with_name("probes.py")
FAR, FAR_CONTINUOUS, RICH = (f"{HERE}:{name}" for name in ("Far", "FarContinuous", "Rich"))
SMALL = {"net.hidden": [16, 16], "batch_size": 16, "net.normalize_obs": True}
SHORT = {"n_steps": 32, "batch_size": 64, "n_epochs": 3}
EVERY = {
    "ppo": (FAR, {**SHORT, "net.normalize_obs": True, "popart": True, "normalize_reward": True}),
    "trpo": (FAR, {"net.normalize_obs": True, "popart": True, "normalize_reward": True, "n_steps": 32}),
    "a2c": (FAR, {"net.normalize_obs": True, "normalize_reward": True}),
    "acktr": (FAR_CONTINUOUS, {"net.normalize_obs": True, "popart": True, "normalize_reward": True}),
    "dqn": (FAR, {**SMALL, "priority.alpha": 0.5}),
    "sac": (FAR_CONTINUOUS, SMALL),
}
ABOUT_STATE = (
    "updates", "metrics", "seeding", "agents", "save-load", "resume", "evaluation", "copies", "weight-zero",
    "weight-scale", "async",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_badly_scaled_observations_pass_the_kit(name: str) -> None:
    env, options = EVERY[name]
    assert not failures(check for check in checks(name, options=options, env=env) if check.name in ABOUT_STATE)


GAMMA = 0.9
PPO = {
    "num_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 4, "learning_rate": 5e-3, "gamma": GAMMA,
    "gae_lambda": 0.9, "total_timesteps": 8_000,
}  # fmt: skip
A2C = {
    "num_envs": 8,
    "n_steps": 5,
    "learning_rate": 5e-3,
    "anneal_lr": True,
    "gamma": GAMMA,
    "ent_coef": 0.0,
    "total_timesteps": 12_000,
}
ACKTR = {"num_envs": 8, "n_steps": 8, "gamma": GAMMA, "ent_coef": 0.0, "total_timesteps": 12_000}
TRPO = {
    "num_envs": 8, "n_steps": 32, "batch_size": 64, "n_critic_updates": 4, "critic_learning_rate": "linear(5e-3,0)",
    "gamma": GAMMA, "gae_lambda": 0.9,
    "total_timesteps": 8_000,
}  # fmt: skip
LATE = GAMMA ** np.arange(5, -1, -1) / (1 - GAMMA)


def mean_return(runner: Any, env: str) -> float:
    return evaluate(runner.snapshot().agent(), make_env(env, 100), 1, Clock(1)).mean


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_observations_far_from_zero_need_normalizing(train_runner: Callable[..., Any], seed: int) -> None:
    """Random answers are right half of the time."""
    options = {**PPO, "seed": seed, "total_timesteps": 4_000}
    assert mean_return(train_runner("ppo", FAR, **options), FAR) < 0.7
    assert mean_return(train_runner("ppo", FAR, **options, **{"net.normalize_obs": True}), FAR) > 0.95


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("ppo", PPO),
        pytest.param("a2c", A2C, marks=pytest.mark.slow),
        ("acktr", ACKTR),
        pytest.param("trpo", TRPO, marks=pytest.mark.slow),
    ],
)
def test_popart_learns_values_of_any_size(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """10,000 at the end, with learning rates for values of 1."""
    values = []
    for popart in (True, False):
        learner = train_runner(algorithm, RICH, **options, popart=popart).snapshot()
        with torch.no_grad():
            values.append(learner.critic(torch.eye(6)).numpy() / 1000)
    assert values[0] == pytest.approx(LATE, rel=0.05)
    assert np.abs(values[1] - LATE).max() > 1


@pytest.mark.parametrize(("algorithm", "options"), [("ppo", PPO), ("a2c", A2C), ("trpo", TRPO)])
def test_scaled_rewards_are_learned_and_true_ones_reported(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    runner = train_runner(algorithm, RICH, **options, normalize_reward=True)
    learner = runner.snapshot()
    with torch.no_grad():
        values = learner.critic(torch.eye(6)).numpy()
    assert values == pytest.approx(1000 * LATE * float(learner.scale_reward.norm.scale), rel=0.1)
    assert {episode.total for _, _, episode in runner.episodes()} == {5000.0}


def test_popart_loss_does_not_depend_on_the_scale_of_rewards(make_learner: Callable[..., Any]) -> None:
    """The balance of policy, values and entropy in A2C's gradient stays the same."""
    from tests.algos.losses import gradients
    from tests.algos.test_policy_losses import random_samples

    flat_gradients = []
    for size in (1.0, 1000.0):
        learner = make_learner("a2c", "Chain", popart=True, ent_coef=0.1)
        torch.manual_seed(3)
        batch = random_samples("Chain", 9)
        batch.target = batch.target * size
        batch.advantage = batch.advantage * size
        learner.critic.update_stats(batch)
        with torch.no_grad():
            learner.critic.output.linear.bias.fill_(0.5)
            learner.critic.output.linear.weight.fill_(0.1)
        loss, _ = learner.loss(learner.critic.normalize(batch), learner.config)
        flat_gradients.append(torch.cat([part.reshape(-1) for part in gradients(learner, loss)]))
    torch.testing.assert_close(*flat_gradients, rtol=1e-3, atol=1e-4)


def test_trpo_fits_values_of_any_size_by_the_same_steps(train_runner: Callable[..., Any]) -> None:
    """With plain gradient descent, which depends on the scale of the gradient."""
    options = {**TRPO, "total_timesteps": 2_000, "optimizer": "sgd", "critic_learning_rate": 0.05, "popart": True}
    values = []
    for env in (f"{HERE}:Late", RICH):
        learner = train_runner("trpo", env, **options).snapshot()
        with torch.no_grad():
            values.append(learner.critic(torch.eye(6)).numpy())
    assert values[1] / 1000 == pytest.approx(values[0], rel=0.05)
    assert np.ptp(values[0]) > 1


@pytest.mark.parametrize("algorithm", ["a2c", "a3c", "vac"])
def test_popart_raises_if_workers_share_weights(tmp_path: Path, algorithm: str) -> None:
    """It raises before anything is written."""
    options = {"popart": True, "runner": "async", "inline": True, "workers": 2}
    with pytest.raises(UsageError, match=r"popart does not run under 'async': .*; use --runner sync or leave"):
        train(algorithm, FAR, options, out=tmp_path / "runs", hooks=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("algorithm", ["td3", "acer-continuous", "sac"])
def test_targets_use_the_same_norm(make_learner: Callable[..., Any], algorithm: str) -> None:
    learner = make_learner(algorithm, FAR_CONTINUOUS, **{"net.normalize_obs": True})
    networks = [part for part in learner.children() if any(isinstance(one, ObservationNorm) for one in part.modules())]
    assert len(networks) > 1
    assert len([part for part in learner.modules() if isinstance(part, ObservationNorm)]) == 1


def test_loaded_policy_normalizes_as_in_training(tmp_path: Path) -> None:
    """The moments are part of the checkpoint and of the weights for actors."""
    options = {**PPO, "total_timesteps": 4_000, "net.normalize_obs": True, "eval_episodes": 5, "final_eval_episodes": 5}
    run = train("ppo", FAR, options, out=tmp_path, hooks=False)
    policy = load(run.path)
    right = [int(policy(np.array([1000 * (3 + x)], np.float32))) == (x > 0) for x in np.linspace(-0.9, 0.9, 10)]
    assert sum(right) >= 9
