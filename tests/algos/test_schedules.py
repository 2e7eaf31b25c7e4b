"""Options that follow schedules, and optimisers by name, in the algorithms as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.rules import Adam, RMSProp, Rule, Torch
from tests.algos.test_options import CLASSES

#: Options that each algorithm reads in updates alone, with which it must run.
FOLLOWING = {
    "a2c": ["lr", "gamma", "lam", "entropy", "value"],
    "a3c": ["lr", "entropy"],
    "vpg": ["lr", "lam"],
    "vac": ["lr", "gamma"],
    "acktr": ["lr", "entropy"],
    "ppo": ["lr", "clip", "value_clip", "entropy", "value", "gamma", "lam"],
    "trpo": ["critic_lr", "entropy", "gamma", "lam"],
    "acer": ["lr", "gamma", "truncate", "region", "average", "entropy", "value"],
    "dqn": ["lr", "tau"],
    "vqn": ["lr", "gamma"],
    "vsarsa": ["lr"],
    "nstep-q": ["lr", "gamma"],
    "ddpg": ["lr", "critic_lr", "tau"],
    "td3": ["lr", "critic_lr", "tau"],
    "sac": ["lr", "critic_lr", "tau"],
}
SMALL: dict[str, Any] = {"rows": 2, "runner": "sync", "total_steps": 120, "net.hidden": [8]}
OFF = {"start": 20, "batch": 8, "every": 2}
CONTINUOUS = ("ddpg", "td3", "sac")


def options_of(algorithm: str) -> dict[str, Any]:
    more: dict[str, Any] = dict(OFF) if algorithm in ("dqn", *CONTINUOUS) else {}
    more |= {"steps": 8} if algorithm in ("a2c", "a3c", "vpg", "acktr", "trpo", "acer", "ppo", "nstep-q") else {}
    more |= {"batch": 8} if algorithm in ("ppo", "trpo") else {}
    more |= {"anneal": False, "lr": 0.1} if algorithm == "ppo" else {}
    more |= {"target_every": 5} if algorithm == "dqn" else {}
    return {**SMALL, **more, **({"start": 0} if algorithm == "acer" else {})}


def env_of(algorithm: str) -> str:
    return "Continuous" if algorithm in CONTINUOUS else "Chain"


def different(one: Any, other: Any) -> bool:
    """Whether some network or target ended with other parameters."""
    pairs = zip(one.snapshot().parameters(), other.snapshot().parameters(), strict=True)
    return any((a != b).any() for a, b in pairs)


@pytest.mark.parametrize(("algorithm", "name"), [(one, name) for one, names in FOLLOWING.items() for name in names])
def test_what_is_said_to_follow_follows(trained: Callable[..., Any], algorithm: str, name: str) -> None:
    """A constant schedule is the number; one that moves gives other weights."""
    options, env = options_of(algorithm), env_of(algorithm)
    number = trained(algorithm, env, **{**options, name: 0.1})
    constant = trained(algorithm, env, **{**options, name: "constant(0.1)"})
    assert not different(number, constant)
    assert different(number, trained(algorithm, env, **{**options, name: "linear(0.1,0.9)"}))


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("dqn", "gamma"), ("dqn", "epsilon_end"), ("dqn", "gradient_clip"), ("dqn", "optimiser.epsilon"),
        ("a2c", "clip"), ("trpo", "kl"), ("acktr", "damping"), ("sac", "temperature"), ("vqn", "epsilon_end"),
    ],
)  # fmt: skip
def test_what_is_read_once_is_refused(learner: Callable[..., Any], algorithm: str, name: str) -> None:
    with pytest.raises(BadConfig, match=rf"^{algorithm}: option '{name}' cannot follow a schedule: it is read once"):
        learner(algorithm, env_of(algorithm), **{name: "linear(0.3,0.9)"})


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
