"""Each algorithm reaches the known answer of small environments; wrong bootstrapping would give another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing import envs, goals, multi_part_actions

GAMMA = 0.9
LATE = f"{Path(__file__).with_name('probes.py')}:Late"
PANELS = "rlplug_core.testing.multi_part_actions"
LATE_VALUES = GAMMA ** np.arange(5, -1, -1) / (1 - GAMMA)
#: Options for these tiny problems.
A2C = {
    "num_envs": 8,
    "n_steps": 5,
    "learning_rate": 5e-3,
    "anneal_lr": True,
    "gamma": GAMMA,
    "ent_coef": 0.0,
    "total_timesteps": 12_000,
}
A3C = {**A2C, "workers": 2, "num_envs": 4, "inline": True}
PPO = {
    "num_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 4, "learning_rate": 5e-3, "gamma": GAMMA,
    "gae_lambda": 0.9, "total_timesteps": 8_000,
}  # fmt: skip
TRPO = {
    "num_envs": 8, "n_steps": 32, "batch_size": 64, "n_critic_updates": 4, "critic_learning_rate": 5e-3, "gamma": GAMMA,
    "gae_lambda": 0.9,
    "total_timesteps": 8_000,
}  # fmt: skip
ACKTR = {
    "num_envs": 8, "n_steps": 20, "gamma": GAMMA, "ent_coef": 0.0, "momentum": 0.5, "anneal_lr": True,
    "total_timesteps": 12_000,
}  # fmt: skip
VPG = {
    "n_steps": 50,
    "learning_rate": 5e-3,
    "anneal_lr": True,
    "gamma": GAMMA,
    "ent_coef": 0.0,
    "total_timesteps": 12_000,
}
ACER = {
    "num_envs": 8, "n_steps": 8, "buffer_size": 2_000, "learning_starts": 200, "gamma": GAMMA, "learning_rate": 2e-3,
    "anneal_lr": True, "ent_coef": 0.0,
    "total_timesteps": 6_000, "net.hidden": [32],
}  # fmt: skip
DQN = {
    "num_envs": 4, "learning_starts": 200, "train_freq": 4, "batch_size": 32, "learning_rate": 2e-3, "anneal_lr": True,
    "gamma": GAMMA, "target_update_interval": 20,
    "buffer_size": 5_000, "total_timesteps": 5_000, "net.hidden": [32], "exploration_final_eps": 0.2,
}  # fmt: skip
ACTOR_CRITICS = [("a2c", A2C), ("a3c", A3C), ("ppo", PPO), ("trpo", TRPO), ("acktr", ACKTR), ("vpg", VPG)]
EVERY = [*ACTOR_CRITICS, ("dqn", DQN), ("acer", ACER)]
Cases = Sequence[tuple[str, dict[str, Any]]]


def algorithms(cases: Cases, *plain: str) -> pytest.MarkDecorator:
    """Run a test on these algorithms; the plain tests take only those in `plain`.

    The plain tests train every algorithm on the bandit; the kit checks ends, truncations and masks of all.
    """
    return pytest.mark.parametrize(
        ("algorithm", "options"),
        [pytest.param(*case, id=case[0], marks=() if case[0] in plain else pytest.mark.slow) for case in cases],
    )


def values(learner: Any, obs: Any) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        out: np.ndarray[Any, Any] = learner.critic(torch.as_tensor(obs)).numpy()
    return out


def mean_return(runner: Any, env: type[envs.Vector], episodes: int = 50) -> float:
    return evaluate(runner.snapshot().agent(), env(episodes), 1, Clock(1)).mean


@algorithms(ACTOR_CRITICS, "a2c", "ppo")
def test_value_bootstraps_from_the_true_successor_of_a_truncation(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """It is 10 at the end, and less if a truncation counts as an end or bootstraps from the next episode."""
    learner = train_runner(algorithm, LATE, **options).snapshot()
    assert values(learner, np.eye(6, dtype=np.float32)) == pytest.approx(LATE_VALUES, rel=0.03)


@pytest.mark.parametrize(
    "variant", [{}, {"n_step": 3}, {"double": True, "dueling": True}], ids=["plain", "3-step", "double-dueling"]
)
def test_action_values_bootstrap_through_truncation(train_runner: Callable[..., Any], variant: dict[str, Any]) -> None:
    """Actions change nothing, so both are worth the value of the state."""
    learner = train_runner("dqn", LATE, **{**DQN, **variant}).snapshot()
    with torch.no_grad():
        q_values = learner.q_network(torch.eye(6)).numpy()
    assert q_values == pytest.approx(np.stack([LATE_VALUES] * 2, 1), rel=0.02)


@algorithms(ACTOR_CRITICS, "a2c", "ppo", "trpo")
def test_policy_learns_the_chain(train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]) -> None:
    """Always right; from the middle on the value is γ^(4 - place)."""
    runner = train_runner(algorithm, "Chain", **options)
    assert mean_return(runner, envs.Chain) == 1
    predictions = values(runner.snapshot(), np.eye(5, dtype=np.float32)[2:])
    assert predictions == pytest.approx(GAMMA ** np.array([2, 1, 0]), abs=0.04)


@pytest.mark.parametrize(
    "variant", [{}, {"n_step": 3}, {"double": True, "dueling": True}], ids=["plain", "3-step", "double-dueling"]
)
def test_action_values_of_the_chain(train_runner: Callable[..., Any], variant: dict[str, Any]) -> None:
    """Q*(place, right) = γ^(4 - place), Q*(place, left) = γ^(6 - place), and 0 for leaving at the left.

    N-step returns that are not corrected for exploration have only the same greedy policy.
    """
    runner = train_runner("dqn", "Chain", **{**DQN, **variant})
    assert mean_return(runner, envs.Chain) == 1
    if "n_step" in variant:
        return
    with torch.no_grad():
        q_values = runner.snapshot().q_network(torch.eye(5)).numpy()
    places = np.arange(5)
    assert q_values[:, 1] == pytest.approx(GAMMA ** (4.0 - places), abs=0.03)
    assert q_values[1:, 0] == pytest.approx(GAMMA ** (6.0 - places[1:]), abs=0.03)
    assert q_values[0, 0] == pytest.approx(0, abs=0.03)


@algorithms(ACTOR_CRITICS, "ppo", "acktr")
def test_gaussian_policy_finds_the_best_action(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """The best action is x / 2 for the observation x; the spread falls, because no reward needs it."""
    learner = train_runner(algorithm, "Continuous", **{**options, "total_timesteps": 20_000}).snapshot()
    seen = torch.linspace(-0.9, 0.9, 7).reshape(-1, 1)
    with torch.no_grad():
        mean, log_std = learner.policy(seen).chunk(2, -1)
    assert mean.ravel().tolist() == pytest.approx((seen.ravel() / 2).tolist(), abs=0.1)
    assert float(log_std.exp().max()) < 0.5


@pytest.mark.parametrize(("algorithm", "options"), EVERY, ids=[name for name, _ in EVERY])
def test_finds_the_better_arm_of_a_bandit(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """Arm 1, with its value 0.9 within the noise of the last pulls."""
    runner = train_runner(algorithm, "Bandit", **{**options, "total_timesteps": 4_000})
    learner = runner.snapshot()
    one = torch.ones(1, 1)
    with torch.no_grad():
        if algorithm == "dqn":
            assert learner.q_network(one)[0].tolist() == pytest.approx([0.1, 0.9], abs=0.1)
        elif algorithm == "acer":
            assert learner.policy(one).softmax(-1)[0, 1] > 0.9
            assert learner.q_network(one)[0].tolist() == pytest.approx([0.1, 0.9], abs=0.15)
        else:
            assert learner.policy(one).softmax(-1)[0, 1] > 0.9
            assert float(learner.critic(one)) == pytest.approx(0.9, abs=0.15)


@algorithms(EVERY, "ppo", "dqn", "acer")
def test_learns_the_best_legal_action(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """A forbidden action raises in the environment; the best return is 4."""
    runner = train_runner(algorithm, "Masked", **{**options, "total_timesteps": 4_000})
    assert mean_return(runner, envs.Masked) == 4


@pytest.mark.parametrize(
    "env",
    [multi_part_actions.Dials, multi_part_actions.MaskedDials, multi_part_actions.Switches],
    ids=lambda env: env.__name__,
)
@algorithms([("a2c", A2C), ("ppo", PPO)], "a2c")
def test_learns_actions_of_several_choices(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any], env: type[envs.Vector]
) -> None:
    """All choices must be right; a forbidden one raises in the environment."""
    runner = train_runner(algorithm, f"{PANELS}:{env.__name__}", **{**options, "total_timesteps": 8_000})
    assert mean_return(runner, env) == (4 if env is multi_part_actions.MaskedDials else 1)


@algorithms([("a2c", A2C), ("ppo", PPO), ("trpo", TRPO), ("acktr", ACKTR)], "ppo")
def test_learns_actions_with_parts_of_all_kinds(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    """One point for each of three parts, minus a little for levers."""
    runner = train_runner(algorithm, f"{PANELS}:Panel", **{**options, "total_timesteps": 12_000})
    assert mean_return(runner, multi_part_actions.Panel) > 2.8


@algorithms([("a2c", A2C), ("ppo", {**PPO, "learning_rate": 2e-3})], "a2c")
def test_learns_a_std_that_depends_on_the_state(
    train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]
) -> None:
    options = {**options, "net.std": "state", "total_timesteps": 20_000}
    learner = train_runner(algorithm, "Continuous", **options).snapshot()
    seen = torch.linspace(-0.9, 0.9, 7).reshape(-1, 1)
    with torch.no_grad():
        mean, log_std = learner.policy(seen).chunk(2, -1)
    assert mean.ravel().tolist() == pytest.approx((seen.ravel() / 2).tolist(), abs=0.1)
    assert float(log_std.exp().max()) < 0.5
    assert float(log_std.std()) > 0


def test_hindsight_learns_goals_that_random_actions_miss(train_runner: Callable[..., Any]) -> None:
    options = {
        "num_envs": 8, "learning_starts": 500, "train_freq": 8, "gradient_steps": 4, "learning_rate": 1e-3,
        "target_update_interval": 50, "exploration_fraction": 0.5, "net.hidden": [64], "gamma": 0.9,
    }  # fmt: skip
    word = f"{goals.__name__}:Bits"
    snapshots = [train_runner("dqn", word, **options, her=her, total_timesteps=6_000).snapshot() for her in (4, 0)]
    assert share_reached(snapshots[0]) > 0.9
    assert share_reached(snapshots[1]) < 0.1


def share_reached(learner: Any) -> float:
    """Return the share of reached goals in about 64 greedy episodes."""
    env = goals.Bits(64)
    now = env.reset(seed=9)
    reached = np.zeros(64, np.bool_)
    with torch.no_grad():
        for _ in range(goals.Bits.bits):
            obs = {name: torch.from_numpy(part) for name, part in now.obs.items()}
            now = env.step(learner.q_network(obs).argmax(1).numpy())
            reached |= now.terminated
    return float(reached.mean())


@pytest.mark.parametrize(("algorithm", "options"), [("ppo", PPO), ("dqn", DQN)], ids=["ppo", "dqn"])
def test_learns_from_images(train_runner: Callable[..., Any], algorithm: str, options: dict[str, Any]) -> None:
    runner = train_runner(algorithm, "Pixels", **{**options, "total_timesteps": 2_000, "learning_rate": 1e-3})
    assert mean_return(runner, envs.Pixels) == 1
