"""Options with schedules, and optimizers by name, in every algorithm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.learning.update_rules import Adam, RMSProp, Torch, UpdateRule
from tests.algos.test_options import ALGORITHMS, SIMPLE
from tests.tables import for_each

#: Options that each algorithm reads only in updates, with the options to train.
FOLLOWING = {
    "a2c": ["learning_rate", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm"],
    "a3c": ["learning_rate", "ent_coef", "max_grad_norm"],
    "vpg": ["learning_rate", "gae_lambda", "max_grad_norm"],
    "vac": ["learning_rate", "gamma", "max_grad_norm"],
    "acktr": ["learning_rate", "ent_coef", "kfac_clip", "critic_kfac_clip", "kfac_damping", "momentum"],
    "impala": [
        "learning_rate",
        "gamma",
        "vtrace_lambda",
        "vtrace_clip_rho",
        "vtrace_clip_c",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
    ],
    "appo": ["learning_rate", "clip_range", "gamma", "vtrace_lambda", "ent_coef", "vf_coef", "max_grad_norm"],
    "ppo": [
        "learning_rate",
        "clip_range",
        "clip_range_vf",
        "ent_coef",
        "vf_coef",
        "gamma",
        "gae_lambda",
        "max_grad_norm",
    ],
    "trpo": ["critic_learning_rate", "ent_coef", "gamma", "gae_lambda", "target_kl", "cg_damping"],
    "acer": [
        "learning_rate",
        "gamma",
        "max_importance_weight",
        "trust_region_delta",
        "average_policy_decay",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
        "replay_ratio",
    ],
    "acer-continuous": ["gamma", "max_grad_norm"],
    "dqn": ["learning_rate", "tau", "gamma", "max_grad_norm"],
    "per-dqn": ["gamma"],
    "vqn": ["learning_rate", "gamma", "max_grad_norm", "softmax_temperature"],
    "vsarsa": ["learning_rate"],
    "nstep-q": ["learning_rate", "gamma", "max_grad_norm", "replay_ratio"],
    "r2d2": ["learning_rate", "tau", "gamma", "max_grad_norm", "priority_eta"],
    "ddpg": ["learning_rate", "critic_learning_rate", "tau", "gamma", "max_grad_norm", "noise_sigma", "noise_theta"],
    "td3": ["learning_rate", "critic_learning_rate", "tau", "gamma", "noise_sigma", "target_policy_noise"],
    "sac": ["learning_rate", "critic_learning_rate", "tau", "gamma", "max_grad_norm", "ent_coef", "target_entropy"],
    "tqc": ["tau", "gamma", "ent_coef", "target_entropy"],
    "crossq": ["gamma", "max_grad_norm", "ent_coef", "target_entropy"],
    "cql": ["tau", "gamma", "conservative_weight", "target_entropy"],
    "iql": ["tau", "gamma", "expectile", "beta", "max_weight"],
    "sac-discrete": ["tau", "gamma", "max_grad_norm", "ent_coef", "target_entropy"],
}
SMALL: dict[str, Any] = {"num_envs": 2, "runner": "sync", "total_timesteps": 64, "net.hidden": [8]}
OFF = {"learning_starts": 20, "batch_size": 8, "train_freq": 2}
CONTINUOUS = ("ddpg", "td3", "sac", "tqc", "crossq", "cql")
REPEATED = f"{Path(__file__).with_name('probes.py')}:Repeated"
REPLAYED = ("dqn", "per-dqn", "r2d2", "sac-discrete", "iql", *CONTINUOUS)
ACER = ("acer", "acer-continuous")
ROLLOUTS = ("a2c", "a3c", "acktr", "appo", "impala", "nstep-q", "ppo", "trpo", "vpg", *ACER)
#: Options that enable the option.
WITH: dict[str, dict[str, Any]] = {
    "noise_theta": {"action_noise": "ornstein-uhlenbeck"},
    "noise_sigma": {"random_steps": 20},
}
TEMPERATURE = ("sac", "tqc", "crossq", "cql", "sac-discrete")


def options_of(algorithm: str) -> dict[str, Any]:
    more: dict[str, Any] = dict(OFF) if algorithm in REPLAYED else {}
    more |= {"n_steps": 8} if algorithm in ROLLOUTS else {}
    more |= {"batch_size": 8} if algorithm in ("appo", "ppo", "trpo") else {}
    more |= {"anneal_lr": False, "learning_rate": 0.1} if algorithm in ("appo", "ppo") else {}
    more |= {"total_timesteps": 120} if algorithm == "acktr" else {}  # its first steps are not clipped
    more |= {"target_update_interval": 5} if algorithm.endswith("dqn") else {}
    more |= {"net.hidden": [8], "random_steps": 20} if algorithm in CONTINUOUS else {}
    more |= {"critic_net.hidden": [8]} if algorithm == "crossq" else {}
    more |= (
        {"sequence_length": 4, "burn_in": 1, "n_step": 2, "target_update_interval": 5} if algorithm == "r2d2" else {}
    )
    return {**SMALL, **more, **({"learning_starts": 0} if algorithm in ACER else {})}


def env_of(algorithm: str) -> str:
    return REPEATED if algorithm in (*CONTINUOUS, "iql", "acer-continuous") else "Chain"


def differ(first: Any, second: Any) -> bool:
    """Return whether some network or target has different parameters."""
    pairs = zip(first.snapshot().parameters(), second.snapshot().parameters(), strict=True)
    return any((a != b).any() for a, b in pairs)


@for_each("algorithm", FOLLOWING)
def test_options_follow_schedules(train_runner: Callable[..., Any], algorithm: str) -> None:
    """A linear schedule gives different weights; a constant one equals the number (tested on the first option)."""
    faults = []
    for place, name in enumerate(FOLLOWING[algorithm]):
        options = {**options_of(algorithm), **WITH.get(name, {})}
        options |= {"autotune": False} if name == "ent_coef" and algorithm in TEMPERATURE else {}
        number, linear = (
            train_runner(algorithm, env_of(algorithm), **{**options, name: value}) for value in (0.1, "linear(0.1,0.9)")
        )
        if not differ(number, linear):
            faults.append(f"{name}: linear(0.1,0.9) changes nothing")
        if place == 0:
            constant = train_runner(algorithm, env_of(algorithm), **{**options, name: "constant(0.1)"})
            if differ(number, constant):
                faults.append(f"{name}: constant(0.1) is not 0.1")
    assert not faults, faults


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("dqn", "exploration_final_eps"), ("dqn", "optimizer_kwargs.eps"), ("dqn", "net.gain"),
        ("per-dqn", "priority.alpha"),
        ("vqn", "exploration_final_eps"), ("c51", "v_max"),
    ],
)  # fmt: skip
def test_options_that_are_read_once_reject_schedules(
    make_learner: Callable[..., Any], algorithm: str, name: str
) -> None:
    with pytest.raises(BadConfig, match=rf"^{algorithm}: option '{name}' cannot follow a schedule, give it a number; "):
        make_learner(algorithm, env_of(algorithm), **{name: "linear(0.3,0.9)"})


@pytest.mark.parametrize("algorithm", TEMPERATURE)
def test_schedule_of_a_learned_temperature_raises(make_learner: Callable[..., Any], algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"ent_coef is learned, .*; give a number, or --no-autotune"):
        make_learner(algorithm, env_of(algorithm), ent_coef="linear(1,0.1)")


@pytest.mark.parametrize(("algorithm", "name"), [("qrdqn", "kappa"), ("iqn", "kappa"), ("iql", "max_weight")])
def test_schedule_may_end_at_0(train_runner: Callable[..., Any], algorithm: str, name: str) -> None:
    runner = train_runner(algorithm, env_of(algorithm), **{**options_of(algorithm), **OFF, name: "linear(1,0,0.5)"})
    assert runner.clock.updates > 0
    assert all(parameter.isfinite().all() for parameter in runner.snapshot().parameters())


@pytest.mark.parametrize("algorithm", ["dqn", "per-dqn", "sac"])
def test_replay_sums_rewards_with_the_current_discount(make_learner: Callable[..., Any], algorithm: str) -> None:
    buffer = make_learner(algorithm, env_of(algorithm), n_step=3, gamma="linear(0.3,0.9)").buffer()
    assert buffer.discount(0.5) == pytest.approx(0.6)


@pytest.mark.parametrize("gamma", ["linear(0.3,0.9)", "piecewise(0:0.5,0.5:0.9,1:0.5)"])
def test_sampled_eviction_rejects_a_scheduled_discount(make_learner: Callable[..., Any], gamma: str) -> None:
    """It stores sums of rewards with the discount at the end of each."""
    with pytest.raises(UsageError, match=r"priority.eviction sampled keeps discounted sums; .* a number"):
        make_learner("per-dqn", "Chain", gamma=gamma, **{"priority.eviction": "sampled"}).buffer()


def test_schedule_replaces_the_default_of_importance_weights(make_learner: Callable[..., Any]) -> None:
    for beta, half in ((0.4, 0.7), ("linear(0.4,0.6)", 0.5)):
        buffer = make_learner("per-dqn", "Chain", **{"priority.beta": beta}).buffer()
        assert buffer.priority.beta(0.5) == pytest.approx(half)


@pytest.mark.parametrize("theta", [0.15, "linear(0.1,0.2)"])
@pytest.mark.parametrize("algorithm", ["ddpg", "td3"])
def test_theta_raises_for_uncorrelated_noise(train_runner: Callable[..., Any], algorithm: str, theta: Any) -> None:
    with pytest.raises(
        UsageError, match=r"noise_theta is .*; give --action-noise ornstein-uhlenbeck, or leave noise_theta at none"
    ):
        train_runner(algorithm, "Continuous", noise_theta=theta)


def test_algorithms_take_an_optimizer_by_name(make_learner: Callable[..., Any]) -> None:
    """Except ACKTR: its optimizer is K-FAC."""
    for algorithm in SIMPLE:
        if algorithm == "acktr":
            continue
        env = "Chain" if "Discrete" in ALGORITHMS[algorithm].actions else "Continuous"
        learner = make_learner(algorithm, env, optimizer="NAdam", **{"optimizer_kwargs.eps": 1e-3})
        rules: list[UpdateRule] = [optimizer.rule for optimizer in learner.optimizers]
        assert rules, algorithm
        for rule in rules:
            assert isinstance(rule, Torch), algorithm
            assert (rule.name, rule.arguments["eps"]) == ("NAdam", 1e-3), algorithm


@for_each(
    "algorithm, kind, values",
    [
        ("a2c", RMSProp, {"alpha": 0.99, "eps": 1e-5, "initial_accumulator_value": 0.0}),
        ("acer", RMSProp, {"alpha": 0.99, "eps": 1e-5, "initial_accumulator_value": 0.0}),
        ("nstep-q", RMSProp, {"alpha": 0.99, "eps": 1e-5, "initial_accumulator_value": 0.0}),
        ("vpg", Adam, {"betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0.0}),
        ("ppo", Adam, {"betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0.0}),
        ("trpo", Adam, {"betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0.0}),
        ("dqn", Adam, {"betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0.0}),
        ("sac", Adam, {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
        ("crossq", Adam, {"betas": (0.5, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
    ],
)
def test_default_optimizers_have_the_documented_values(
    make_learner: Callable[..., Any], algorithm: str, kind: type[Any], values: dict[str, Any]
) -> None:
    learner = make_learner(algorithm, "Continuous" if algorithm in ("sac", "crossq") else "Chain")
    for optimizer in learner.optimizers:
        if optimizer.name == "CrossQ.temperature":  # tests/algos/test_sac_family.py has its betas
            continue
        assert type(optimizer.rule) is kind
        assert {name: value for name, value in vars(optimizer.rule).items() if name != "arrays"} == values
