"""What is remarked on before a run that does what was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlplug_core.loop.plan import Plan
from rlplug_core.runs import messages as module
from rlplug_core.runs.messages import remarks
from tests.cli.conftest import Done

CHAIN = "rlplug_core.testing.envs:Chain"


def remarked(algorithm: str, values: dict[str, object], origin: str = "option") -> list[str]:
    return list(remarks(Plan.make(algorithm, CHAIN, values), dict.fromkeys(values, origin)))


def test_a_minibatch_larger_than_a_rollout_is_remarked_on() -> None:
    values = {"n_steps": 32, "num_envs": 8}
    (said,) = remarked("ppo", {**values, "batch_size": 7777})
    assert said.startswith("batch_size is 7,777, and a rollout has 256 steps")
    assert remarked("ppo", {**values, "batch_size": 256}) == []


def test_a_chunk_that_is_a_large_part_of_the_run_is_remarked_on() -> None:
    values = {"actors": 1, "num_envs": 8, "chunk_steps": 500, "total_timesteps": 1000}
    (said,) = remarked("impala", values)
    assert said == (
        "total_timesteps is 1,000, and a chunk of an actor has 4,000 env steps (chunk_steps times num_envs), which are "
        "learned from whole: the run ends up to a chunk later; a smaller --chunk-steps ends it sooner"
    )
    assert remarked("impala", {**values, "total_timesteps": 40_000}) == []
    assert remarked("impala", {**values, "inline": True}) == []


def test_more_processes_than_cores_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    assert remarked("a3c", {"runner": "async", "workers": 2}) == []
    assert remarked("a3c", {"runner": "async", "workers": 64, "inline": True}) == []
    assert remarked("a3c", {"runner": "async", "workers": 64}) == [
        "workers is 64, and this machine has 2 cores: they will share cores and be no faster"
    ]
    (said,) = remarked("a2c", {"env_workers": 3, "num_envs": 3})
    assert said.startswith("env_workers is 3")


@pytest.mark.parametrize(
    ("algorithm", "values", "said"),
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
def test_an_option_without_effect_is_remarked_on_where_somebody_gave_it(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, values: dict[str, object], said: str
) -> None:
    monkeypatch.setattr(module, "cores", lambda: 64)
    assert [one[: len(said)] for one in remarked(algorithm, values)] == [said]
    assert remarked(algorithm, values, "preset") == []


def test_an_option_with_effect_is_not_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 64)
    for algorithm, values in (
        ("a3c", {"workers": 2, "inline": True, "runner": "async"}),
        ("impala", {"actors": 2, "max_lag": 3, "chunk_steps": 8, "inline": True}),
        ("dqn", {"actors": 2, "runner": "decoupled"}),
        ("a2c", {"env_workers": 2, "num_envs": 4}),
        ("a2c", {"env_workers": 1}),
    ):
        assert remarked(algorithm, values) == []


def test_a_run_says_it_once_before_it_begins(rlplug: Callable[..., Done], short: tuple[str, ...]) -> None:
    done = rlplug("run", "a2c", CHAIN, *short, "--workers", "3", "-P", "no:mlflow")
    assert done.code == 0
    assert done.out.count("workers has no effect under the runner 'sync'; use --runner async\n") == 1
    assert "has no effect" not in rlplug("run", "a2c", CHAIN, *short, "-P", "no:mlflow").out
