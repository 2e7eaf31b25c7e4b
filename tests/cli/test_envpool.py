"""Runs in EnvPool's environments, if the package is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import rlplug_core
from rlplug_core.runs.listing import records
from tests.cli.conftest import Result
from tests.faults.test_kills import complete_and_killed_runs
from tests.faults.trials import final_hashes

pytest.importorskip("envpool", reason="the extra rlplug-envs[envpool] is not installed")
CART = "envpool:CartPole-v1"


pytestmark = pytest.mark.usefixtures("no_mlflow")


def rollouts(name: str) -> list[float]:
    """Return the mean returns that a run logged in training."""
    key = "rollout/return_mean"
    metrics = [record.data for record in records(Path("runs", name)) if record.kind == "metrics"]
    return [data[key] for data in metrics if key in data]


def test_ppo_learns_and_resumes_with_new_episodes(rlplug: Callable[..., Result]) -> None:
    few = ("--eval-every", "10000", "--eval-episodes", "10", "--final-eval-episodes", "10")
    result = rlplug("run", "ppo", CART, "--num-envs", "8", "--total-timesteps", "30000", *few, "--name", "one")
    assert (result.code, "Traceback" in result.err) == (0, False)
    run = rlplug_core.open_run("one")
    assert rollouts("one")[0] < 60
    assert run.evaluate(10).mean > 250
    manifest = json.loads(next(Path("runs/one/checkpoints").glob("final-*/manifest.json")).read_text("utf-8"))
    assert not manifest["exact"]
    assert manifest["inexact"] == f"{CART}: EnvPool does not expose its state"
    assert rlplug("resume", "one", "--total-timesteps", "32000").code == 0
    assert rlplug_core.open_run("one").curve()[0][-1] > 31_000


def test_killed_run_resumes_exactly_with_resume_exact(place: Path) -> None:
    words = ("run", "ppo", CART, "--num-envs", "2", "--n-steps", "32", "--total-timesteps", "1500", "--resume-exact")
    few = ("--checkpoint-every", "200", "--eval-every", "500", "--eval-episodes", "2", "--final-eval-episodes", "2")
    complete, killed = complete_and_killed_runs((*words, *few), place)
    assert final_hashes(killed) == final_hashes(complete)


def test_same_seed_gives_the_same_run(rlplug: Callable[..., Result]) -> None:
    returns = []
    for name, seed in (("one", "3"), ("two", "3"), ("three", "4")):
        words = ("--total-timesteps", "2000", "--num-envs", "4", "--eval-episodes", "2", "--final-eval-episodes", "2")
        assert rlplug("run", "ppo", CART, *words, "--seed", seed, "--name", name).code == 0
        returns.append(rollouts(name))
    assert returns[0]
    assert returns[0] == returns[1] != returns[2]


def test_info_and_list_show_the_family(rlplug: Callable[..., Result]) -> None:
    facts = json.loads(rlplug("info", CART, "--json").out)
    assert (facts["exact"], facts["limit"]) == (False, 500)
    assert facts["rewards"]["low"] == facts["rewards"]["high"] == 1.0  # of steps, not of resets
    assert CART in rlplug("list", "envs", "--family", "envpool").out
    assert "did you mean 'envpool:CartPole-v1'" in rlplug("info", "envpool:CartPole").err


def test_env_workers_are_refused(rlplug: Callable[..., Result]) -> None:
    words = ("--num-envs", "4", "--total-timesteps", "500", "--eval-episodes", "1", "--final-eval-episodes", "1")
    result = rlplug("run", "ppo", CART, *words, "--env-workers", "2")
    assert result.code == 2
    assert f"{CART} steps in its own threads; leave out --env-workers" in result.err
    result = rlplug("run", "ppo", CART, *words, "--env-workers", "0")
    assert result.code == 0
    assert f"{CART} steps in its own threads: --env-workers 1" in result.out + result.err
