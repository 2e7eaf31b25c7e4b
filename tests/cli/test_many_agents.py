"""Runs in worlds with many agents: trained, logged and evaluated for each agent, and resumed to the same bits."""

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
from tests.cli.conftest import Done
from tests.faults.test_kills import final, whole_and_killed

DILEMMA, SPREAD, BOARD = (
    f"pettingzoo/{name}" for name in ("tests.envs.games", "mpe2.simple_spread", "classic.tictactoe")
)
FEW = {"eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 3}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where processes find the tests' worlds


def test_agents_are_told_apart_in_the_log_in_evaluations_and_at_the_end(rlplug: Callable[..., Done]) -> None:
    words = [word for name, value in FEW.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = rlplug("run", "ppo", DILEMMA, "--total-timesteps", "400", "--n-steps", "16", *words, "--name", "one")
    assert (done.code, done.err) == (0, "")
    assert "by agent" in done.out
    found = {record.kind: record.data for record in records(Path("runs/one"))}
    for agent in ("row", "column"):
        assert 0 <= found["metrics"][f"rollout/return_mean/{agent}"] <= 25
        assert 0 <= found["evaluation"][f"eval/return_mean/{agent}"] <= 25
        assert 0 <= found["final_eval"][f"last_return_mean/{agent}"] <= 25
    played = json.loads(rlplug("evaluate", "one", "--episodes", "4", "--json").out)
    assert (played["episodes"], len(played["returns"])) == (4, 8)
    assert set(played["by_agent"]) == {"row", "column"}


def test_episodes_that_are_watched_are_reported_as_evaluated_ones_are() -> None:
    env = make_env(DILEMMA, 1)
    agent = RandomAgent(env.spec.action, Seeds(1))
    found = play(agent, env, episodes=3, seed=1, clock=Clock(1), reel=None)
    assert found.agents == ("row", "column") * 3
    assert (found.episodes, found.lengths) == (3, (5,) * 6)
    assert found.by_agent["row"] != found.by_agent["column"]
    assert found.mean == pytest.approx(sum(found.by_agent.values()) / 2)


def test_an_algorithm_of_a_file_takes_part_unchanged() -> None:
    """The README's example, which knows nothing of agents: each is a row of its batches, and has returns of its own."""
    run = rlplug_core.train(f"{ROOT}/examples/my_algo.py:MyAlgo", DILEMMA, {**FEW, "total_timesteps": 400}, hooks=False)
    assert set(run.evaluate(2).by_agent) == {"row", "column"}
    assert run.summary().steps == 400
    assert any(record.kind == "metrics" and "rollout/return_mean/row" in record.data for record in records(run.path))


def test_the_dilemma_is_solved_as_game_theory_has_it() -> None:
    """Defecting dominates: learners of their own return end where neither gains by another choice."""
    options = {**FEW, "total_timesteps": 12_000, "n_steps": 32, "learning_rate": 3e-3, "eval_every": 12_000}
    run = rlplug_core.train("ppo", DILEMMA, options, hooks=False)
    assert run.evaluate(5, checkpoint="final").by_agent == {"row": 5.0, "column": 5.0}


@pytest.mark.slow  # `tests/algos/test_many_agents.py` resumes in one process
@pytest.mark.parametrize(("algorithm", "env"), [("ppo", BOARD), ("dqn", SPREAD), ("ppo-recurrent", BOARD)])
def test_killed_and_resumed_it_ends_with_the_same_bits(algorithm: str, env: str, place: Path) -> None:
    steps = {"ppo": "--n-steps", "dqn": "--learning-starts", "ppo-recurrent": "--n-steps"}[algorithm]
    words = ("run", algorithm, env, "--total-timesteps", "1500", steps, "32", "--checkpoint-every", "200")
    few = ("--eval-every", "500", "--eval-episodes", "2", "--final-eval-episodes", "2")
    whole, killed = whole_and_killed((*words, *few), place)
    assert final(killed) == final(whole)
    manifest: dict[str, Any] = json.loads(next(killed.glob("checkpoints/final-*/manifest.json")).read_bytes())
    assert manifest["exact"]


def test_workers_are_refused_in_one_sentence(rlplug: Callable[..., Done]) -> None:
    done = rlplug("run", "ppo", DILEMMA, "--total-timesteps", "100", "--num-envs", "2", "--env-workers", "2")
    assert done.code == 2
    assert "leave out --env-workers" in done.err


def test_a_world_can_be_shown(rlplug: Callable[..., Done]) -> None:
    done = rlplug("info", SPREAD, "--json", "--frame", "first.png")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["kind"], found["family"], found["exact"]) == ("multi-agent", "multiagent", True)
    assert found["agents"] == ["agent_0", "agent_1", "agent_2"]
    assert Path("first.png").stat().st_size > 100


@pytest.mark.parametrize("env", ["mpe2.simple_tag", "mpe2.simple_speaker_listener"])
def test_only_what_runs_is_named_where_spaces_differ(env: str, rlplug: Callable[..., Done]) -> None:
    found = json.loads(rlplug("info", f"pettingzoo/{env}", "--json").out)
    named = {one["algorithm"] for one in found["algorithms"]}
    assert "independent" in named
    few = ("--total-timesteps", "100", "--eval-episodes", "1", "--final-eval-episodes", "1")
    for algorithm in ("independent", "mappo", "ppo", "self-play", "trpo"):
        done = rlplug("run", algorithm, f"pettingzoo/{env}", *few)
        assert (done.code == 0) == (algorithm in named), done.err
