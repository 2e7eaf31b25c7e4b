"""Options that follow schedules, and optimisers by name, in the algorithms as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.rules import Adam, RMSProp, Rule, Torch
from tests.algos.test_options import CLASSES

#: Options that each algorithm reads in updates alone, with which it must run.
FOLLOWING = {
    "a2c": ["lr", "gamma", "lam", "entropy", "value", "clip"],
    "a3c": ["lr", "entropy", "clip"],
    "vpg": ["lr", "lam", "clip"],
    "vac": ["lr", "gamma", "clip"],
    "acktr": ["lr", "entropy", "kl", "critic_kl", "damping", "momentum"],
    "ppo": ["lr", "clip", "value_clip", "entropy", "value", "gamma", "lam", "gradient_clip"],
    "trpo": ["critic_lr", "entropy", "gamma", "lam", "kl", "damping"],
    "acer": ["lr", "gamma", "truncate", "region", "average", "entropy", "value", "clip", "replays"],
    "acer-continuous": ["clip"],
    "dqn": ["lr", "tau", "gamma", "gradient_clip"],
    "per-dqn": ["gamma"],
    "vqn": ["lr", "gamma", "clip", "temperature"],
    "vsarsa": ["lr"],
    "nstep-q": ["lr", "gamma", "clip", "replay"],
    "ddpg": ["lr", "critic_lr", "tau", "gamma", "gradient_clip", "sigma", "theta"],
    "td3": ["lr", "critic_lr", "tau", "gamma", "sigma", "smoothing"],
    "sac": ["lr", "critic_lr", "tau", "gamma", "gradient_clip", "temperature", "target_entropy"],
    "tqc": ["gamma", "temperature", "target_entropy"],
    "crossq": ["gamma", "gradient_clip", "temperature", "target_entropy"],
    "sac-discrete": ["gamma", "gradient_clip", "temperature", "target_entropy"],
}
SMALL: dict[str, Any] = {"rows": 2, "runner": "sync", "total_steps": 120, "net.hidden": [8]}
OFF = {"start": 20, "batch": 8, "every": 2}
CONTINUOUS = ("ddpg", "td3", "sac", "tqc", "crossq")
REPEATED = f"{Path(__file__).with_name('probes.py')}:Repeated"
REPLAYED = ("dqn", "per-dqn", "sac-discrete", *CONTINUOUS)
ACER = ("acer", "acer-continuous")
#: With which the option is in use.
WITH: dict[str, dict[str, Any]] = {
    "temperature": {"automatic": False}, "theta": {"noise": "ornstein-uhlenbeck"}, "sigma": {"warmup": 20},
}  # fmt: skip


def options_of(algorithm: str) -> dict[str, Any]:
    more: dict[str, Any] = dict(OFF) if algorithm in REPLAYED else {}
    more |= {"steps": 8} if algorithm in ("a2c", "a3c", "vpg", "acktr", "trpo", "ppo", "nstep-q", *ACER) else {}
    more |= {"batch": 8} if algorithm in ("ppo", "trpo") else {}
    more |= {"anneal": False, "lr": 0.1} if algorithm == "ppo" else {}
    more |= {"target_every": 5} if algorithm.endswith("dqn") else {}
    more |= {"net.hidden": [8], "warmup": 20} if algorithm in CONTINUOUS else {}
    more |= {"critic_net.hidden": [8]} if algorithm == "crossq" else {}
    return {**SMALL, **more, **({"start": 0} if algorithm in ACER else {})}


def env_of(algorithm: str) -> str:
    return REPEATED if algorithm in (*CONTINUOUS, "acer-continuous") else "Chain"


def different(one: Any, other: Any) -> bool:
    """Whether some network or target ended with other parameters."""
    pairs = zip(one.snapshot().parameters(), other.snapshot().parameters(), strict=True)
    return any((a != b).any() for a, b in pairs)


@pytest.mark.parametrize(("algorithm", "name"), [(one, name) for one, names in FOLLOWING.items() for name in names])
def test_what_is_said_to_follow_follows(trained: Callable[..., Any], algorithm: str, name: str) -> None:
    """A constant schedule is the number; one that moves gives other weights."""
    options, env = {**options_of(algorithm), **(WITH.get(name, {}) if algorithm != "vqn" else {})}, env_of(algorithm)
    number = trained(algorithm, env, **{**options, name: 0.1})
    constant = trained(algorithm, env, **{**options, name: "constant(0.1)"})
    assert not different(number, constant)
    assert different(number, trained(algorithm, env, **{**options, name: "linear(0.1,0.9)"}))


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("dqn", "epsilon_end"), ("dqn", "optimiser.epsilon"), ("dqn", "net.gain"), ("per-dqn", "priority.alpha"),
        ("vqn", "epsilon_end"), ("c51", "v_max"), ("sac", "temperature"),
    ],
)  # fmt: skip
def test_what_is_read_once_is_refused(learner: Callable[..., Any], algorithm: str, name: str) -> None:
    with pytest.raises(BadConfig, match=rf"^{algorithm}: option '{name}' cannot follow a schedule: it is read once"):
        learner(algorithm, env_of(algorithm), **{name: "linear(0.3,0.9)"})


@pytest.mark.parametrize("algorithm", ["dqn", "per-dqn", "sac"])
def test_a_discount_that_replay_sums_rewards_with_is_refused(learner: Callable[..., Any], algorithm: str) -> None:
    with pytest.raises(BadConfig, match=rf"^{algorithm}: .* 'gamma' cannot follow a schedule with n_step 3: .* at 1$"):
        learner(algorithm, env_of(algorithm), n_step=3, gamma="linear(0.3,0.9)")


def test_a_schedule_of_importance_weights_takes_the_place_of_the_usual_one(learner: Callable[..., Any]) -> None:
    for beta, half in ((0.4, 0.7), ("linear(0.4,0.6)", 0.5)):
        buffer = learner("per-dqn", "Chain", **{"priority.beta": beta}).buffer()
        assert buffer.priority.beta(0.5) == pytest.approx(half)


@pytest.mark.parametrize("theta", [0.15, "linear(0.1,0.2)"])
@pytest.mark.parametrize("algorithm", ["ddpg", "td3"])
def test_theta_is_refused_where_noise_does_not_wander(trained: Callable[..., Any], algorithm: str, theta: Any) -> None:
    with pytest.raises(UsageError, match=r"^theta is .*; give --noise ornstein-uhlenbeck, or leave theta at none"):
        trained(algorithm, "Continuous", theta=theta)


@pytest.mark.parametrize("algorithm", [name for name in CLASSES if name != "acktr"])
def test_every_algorithm_takes_an_optimiser_by_name(learner: Callable[..., Any], algorithm: str) -> None:
    """ACKTR is its own: what makes it is K-FAC."""
    try:
        made = learner(algorithm, "Chain", rule="NAdam", **{"optimiser.epsilon": 1e-3})
    except UsageError:
        made = learner(algorithm, "Continuous", rule="NAdam", **{"optimiser.epsilon": 1e-3})
    rules: list[Rule] = [optimiser.rule for optimiser in made.optimisers]
    assert rules
    for rule in rules:
        assert isinstance(rule, Torch)
        assert (rule.name, rule.arguments["eps"]) == ("NAdam", 1e-3)


@pytest.mark.parametrize(
    ("algorithm", "kind", "values"),
    [
        ("a2c", RMSProp, {"decay": 0.99, "epsilon": 1e-5}),
        ("acer", RMSProp, {"decay": 0.99, "epsilon": 1e-5}),
        ("nstep-q", RMSProp, {"decay": 0.99, "epsilon": 1e-5}),
        ("vpg", Adam, {"betas": (0.9, 0.999), "epsilon": 1e-5, "weight_decay": 0.0}),
        ("ppo", Adam, {"betas": (0.9, 0.999), "epsilon": 1e-5, "weight_decay": 0.0}),
        ("trpo", Adam, {"betas": (0.9, 0.999), "epsilon": 1e-5, "weight_decay": 0.0}),
        ("dqn", Adam, {"betas": (0.9, 0.999), "epsilon": 1e-5, "weight_decay": 0.0}),
        ("sac", Adam, {"betas": (0.9, 0.999), "epsilon": 1e-8, "weight_decay": 0.0}),
        ("crossq", Adam, {"betas": (0.5, 0.999), "epsilon": 1e-8, "weight_decay": 0.0}),
    ],
)
def test_the_usual_optimisers_are_what_they_were(
    learner: Callable[..., Any], algorithm: str, kind: type[Any], values: dict[str, Any]
) -> None:
    made = learner(algorithm, "Continuous" if algorithm in ("sac", "crossq") else "Chain")
    for optimiser in made.optimisers:
        assert type(optimiser.rule) is kind
        assert vars(optimiser.rule) == values
