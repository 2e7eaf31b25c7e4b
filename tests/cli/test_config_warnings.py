"""Warnings about options before a run starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlplug_core.loop.plan import Plan
from rlplug_core.runs import messages as module
from rlplug_core.runs.messages import remarks
from tests.cli.conftest import Result

CHAIN = "rlplug_core.testing.envs:Chain"


def warnings_for(algorithm: str, values: dict[str, object], origin: str = "option") -> list[str]:
    return list(remarks(Plan.make(algorithm, CHAIN, values), dict.fromkeys(values, origin)))


def test_warns_if_minibatch_is_larger_than_rollout() -> None:
    values = {"n_steps": 32, "num_envs": 8}
    (message,) = warnings_for("ppo", {**values, "batch_size": 7777})
    assert message.startswith("batch_size is 7,777, and a rollout has 256 steps")
    assert warnings_for("ppo", {**values, "batch_size": 256}) == []


def test_warns_if_chunk_is_a_large_part_of_the_run() -> None:
    values = {"actors": 1, "num_envs": 8, "chunk_steps": 500, "total_timesteps": 1000}
    (message,) = warnings_for("impala", values)
    assert message == (
        "total_timesteps is 1,000, and a chunk of an actor has 4,000 env steps (chunk_steps times num_envs), which are "
        "learned from whole: the run ends up to a chunk later; a smaller --chunk-steps ends it sooner"
    )
    assert warnings_for("impala", {**values, "total_timesteps": 40_000}) == []
    assert warnings_for("impala", {**values, "inline": True}) == []


def test_warns_if_processes_outnumber_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    assert warnings_for("a3c", {"runner": "async", "workers": 2}) == []
    assert warnings_for("a3c", {"runner": "async", "workers": 64, "inline": True}) == []
    assert warnings_for("a3c", {"runner": "async", "workers": 64}) == [
        "workers is 64, and this machine has 2 cores: they will share cores and be no faster"
    ]
    (message,) = warnings_for("a2c", {"env_workers": 3, "num_envs": 3})
    assert message.startswith("env_workers is 3")


@pytest.mark.parametrize(
    ("algorithm", "values", "message"),
    [
        (
            "dqn",
            {"workers": 4},
            "workers has no effect under the runner 'sync'; it is for the runner 'async', under which dqn",
        ),
        ("dqn", {"actors": 1}, "actors has no effect under the runner 'sync'; use --runner decoupled"),
        ("dqn", {"max_lag": 3}, "max_lag has no effect under the runner 'sync'; use --runner decoupled"),
        ("dqn", {"inline": True}, "inline has no effect under the runner 'sync'; use --runner decoupled"),
        ("impala", {"workers": 1}, "workers has no effect under the runner 'decoupled'; it is for the runner 'async'"),
        (
            "a3c",
            {"actors": 1, "workers": 1, "runner": "async"},
            "actors has no effect under the runner 'async'; it is for",
        ),
        (
            "a2c",
            {"env_workers": 2},
            "env_workers is 2, which has no effect with a single environment; use --num-envs too",
        ),
        (
            "a2c",
            {"env_workers": 4, "num_envs": 3},
            "env_workers is 4, and there are 3 environments: each gets only one process",
        ),
        (
            "cql",
            {"env_workers": 2, "offline": True, "dataset": "some.npz", "num_envs": 2},
            "env_workers has no effect in an",
        ),
    ],
)
def test_warns_about_a_given_option_without_effect(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, values: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(module, "cores", lambda: 64)
    assert [warning[: len(message)] for warning in warnings_for(algorithm, values)] == [message]
    assert warnings_for(algorithm, values, "preset") == []


def test_option_with_effect_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 64)
    for algorithm, values in (
        ("a3c", {"workers": 2, "inline": True, "runner": "async"}),
        ("impala", {"actors": 2, "max_lag": 3, "chunk_steps": 8, "inline": True}),
        ("dqn", {"actors": 2, "runner": "decoupled"}),
        ("a2c", {"env_workers": 2, "num_envs": 4}),
        ("a2c", {"env_workers": 1}),
    ):
        assert warnings_for(algorithm, values) == []


def test_run_warns_once(rlplug: Callable[..., Result], short: tuple[str, ...]) -> None:
    result = rlplug("run", "a2c", CHAIN, *short, "--workers", "3", "-P", "no:mlflow")
    assert result.code == 0
    assert result.out.count("workers has no effect under the runner 'sync'; use --runner async\n") == 1
    assert "has no effect" not in rlplug("run", "a2c", CHAIN, *short, "-P", "no:mlflow").out
