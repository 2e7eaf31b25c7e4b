"""Runs in worlds with many agents are trained, logged and evaluated for each agent, and resume exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlplug_core
from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.clock import Clock
from rlplug_core.films.player import play
from rlplug_core.plugins.envs import make_env
from rlplug_core.runs.listing import records
from rlplug_core.seeds import Seeds
from tests.cli.conftest import Result
from tests.faults.test_kills import complete_and_killed_runs
from tests.faults.trials import final_hashes

DILEMMA, SPREAD, BOARD = (
    f"pettingzoo/{name}" for name in ("tests.envs.games", "mpe2.simple_spread", "classic.tictactoe")
)
FEW = {"eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 3}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def settings(no_mlflow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # lets processes import the worlds of the tests


def test_log_and_evaluations_have_a_return_for_each_agent(rlplug: Callable[..., Result]) -> None:
    words = [word for name, value in FEW.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    result = rlplug("run", "ppo", DILEMMA, "--total-timesteps", "400", "--n-steps", "16", *words, "--name", "one")
    assert (result.code, result.err) == (0, "")
    assert "by agent" in result.out
    data_by_kind = {record.kind: record.data for record in records(Path("runs/one"))}
    for agent in ("row", "column"):
        assert 0 <= data_by_kind["metrics"][f"rollout/return_mean/{agent}"] <= 25
        assert 0 <= data_by_kind["evaluation"][f"eval/return_mean/{agent}"] <= 25
        assert 0 <= data_by_kind["final_eval"][f"last_return_mean/{agent}"] <= 25
    played = json.loads(rlplug("evaluate", "one", "--episodes", "4", "--json").out)
    assert (played["episodes"], len(played["returns"])) == (4, 8)
    assert set(played["by_agent"]) == {"row", "column"}


def test_play_reports_returns_for_each_agent() -> None:
    env = make_env(DILEMMA, 1)
    agent = RandomAgent(env.spec.action, Seeds(1))
    evaluation = play(agent, env, episodes=3, seed=1, clock=Clock(1), reel=None)
    assert evaluation.agents == ("row", "column") * 3
    assert (evaluation.episodes, evaluation.lengths) == (3, (5,) * 6)
    assert evaluation.by_agent["row"] != evaluation.by_agent["column"]
    assert evaluation.mean == pytest.approx(sum(evaluation.by_agent.values()) / 2)


def test_algorithm_in_a_file_works_with_many_agents() -> None:
    """The README's example has no code for agents: each agent is a row of its batches and has its own returns."""
    run = rlplug_core.train(f"{ROOT}/examples/my_algo.py:MyAlgo", DILEMMA, {**FEW, "total_timesteps": 400}, hooks=False)
    assert set(run.evaluate(2).by_agent) == {"row", "column"}
    assert run.summary().steps == 400
    assert any(record.kind == "metrics" and "rollout/return_mean/row" in record.data for record in records(run.path))


def test_independent_learners_defect_in_the_dilemma() -> None:
    """Defecting dominates, so learners that maximize their own returns both defect."""
    options = {**FEW, "total_timesteps": 12_000, "n_steps": 32, "learning_rate": 3e-3, "eval_every": 12_000}
    run = rlplug_core.train("ppo", DILEMMA, options, hooks=False)
    assert run.evaluate(5, checkpoint="final").by_agent == {"row": 5.0, "column": 5.0}


@pytest.mark.slow  # `tests/algos/test_many_agents.py` resumes in one process
@pytest.mark.parametrize(("algorithm", "env"), [("ppo", BOARD), ("dqn", SPREAD), ("ppo-recurrent", BOARD)])
def test_killed_run_resumes_exactly(algorithm: str, env: str, place: Path) -> None:
    steps = {"ppo": "--n-steps", "dqn": "--learning-starts", "ppo-recurrent": "--n-steps"}[algorithm]
    words = ("run", algorithm, env, "--total-timesteps", "1500", steps, "32", "--checkpoint-every", "200")
    few = ("--eval-every", "500", "--eval-episodes", "2", "--final-eval-episodes", "2")
    complete, killed = complete_and_killed_runs((*words, *few), place)
    assert final_hashes(killed) == final_hashes(complete)
    manifest: dict[str, Any] = json.loads(next(killed.glob("checkpoints/final-*/manifest.json")).read_bytes())
    assert manifest["exact"]


def test_env_workers_are_refused(rlplug: Callable[..., Result]) -> None:
    result = rlplug("run", "ppo", DILEMMA, "--total-timesteps", "100", "--num-envs", "2", "--env-workers", "2")
    assert result.code == 2
    assert "leave out --env-workers" in result.err


def test_info_describes_a_world(rlplug: Callable[..., Result]) -> None:
    result = rlplug("info", SPREAD, "--json", "--frame", "first.png")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert (facts["kind"], facts["family"], facts["exact"]) == ("multi-agent", "multiagent", True)
    assert facts["agents"] == ["agent_0", "agent_1", "agent_2"]
    assert Path("first.png").stat().st_size > 100


@pytest.mark.parametrize("env", ["mpe2.simple_tag", "mpe2.simple_speaker_listener"])
def test_info_names_only_algorithms_that_run(env: str, rlplug: Callable[..., Result]) -> None:
    facts = json.loads(rlplug("info", f"pettingzoo/{env}", "--json").out)
    named = {row["algorithm"] for row in facts["algorithms"]}
    assert "independent" in named
    few = ("--total-timesteps", "100", "--eval-episodes", "1", "--final-eval-episodes", "1")
    for algorithm in ("independent", "mappo", "ppo", "self-play", "trpo"):
        result = rlplug("run", algorithm, f"pettingzoo/{env}", *few)
        assert (result.code == 0) == (algorithm in named), result.err
