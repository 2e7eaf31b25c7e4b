"""A run in an environment that no preset names: what it is told, and how long its evaluations may take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlplug_core import open_run, resume, train
from rlplug_core.errors import PluginError
from rlplug_core.plugins import make_env
from rlplug_core.plugins.wrapper_spec import Wrapping, wrapped
from rlplug_core.runs import evaluation_budget
from rlplug_core.runs.evaluation_budget import EvaluationBudget
from rlplug_core.runs.evaluation_budget import allowance as allowed
from rlplug_core.runs.reproduction import reproduce
from tests.cli.conftest import Done

MINUTE = 60.0
#: Two evaluations in few steps; how many episodes they play is left open.
BRIEF = {"total_timesteps": 64, "n_steps": 8, "num_envs": 1, "eval_every": 32, "env.max_episode_steps": 10}


@pytest.mark.parametrize(
    ("step", "length", "hours", "episodes"),
    [
        (4e-6, 500, 0.002, (25, 100)),  # CartPole for seven seconds: a twentieth of one is nothing
        (1e-4, 1000, 0.01, (1, 100)),  # half a minute of PPO in Hopper
        (1e-4, 1000, 1.0, (100, 100)),  # an hour of SAC there
        (3e-2, 40, 0.2, (3, 60)),  # highway-fast
        (1.0, 1000, 0.2, (1, 10)),  # there is no less
    ],
)
def test_evaluations_take_a_tenth_of_the_run_or_a_moment_each(
    step: float, length: int, hours: float, episodes: tuple[int, int]
) -> None:
    total, every = 100_000, 5_000
    spent = hours * 60 * MINUTE * every / total  # up to the first evaluation
    found = allowed(step, length, spent, every, every, total)
    assert (found.episodes, found.final) == episodes
    assert bool(found.fewer) == (episodes != (100, 100))
    if found.episodes > 1:
        assert found.episodes * found.seconds <= max(0.1 * spent, 0.05)


def test_a_slow_run_plays_fewer_episodes_and_its_continuation_as_many(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluation_budget, "step_seconds", lambda *_: 1.0)  # of which ten are an episode
    run = train("a2c", "CartPole-v1", BRIEF, hooks=False)
    assert "an episode takes 10 s here: evaluations play 1 episodes, the final one 10;" in capsys.readouterr().err
    assert EvaluationBudget.recorded(run.path) == EvaluationBudget(1, 10, 10.0)
    (found,) = [record for record in evaluation_budget.records(run.path) if record.kind == "final_eval"]
    assert found.data["episodes"] == 10
    monkeypatch.setattr(evaluation_budget, "step_seconds", lambda *_: 0.1)
    resume(run, total_timesteps=96, hooks=False)
    assert EvaluationBudget.recorded(run.path) == EvaluationBudget(1, 10, 10.0)
    assert train("a2c", "CartPole-v1", BRIEF, hooks=False).summary() is not None
    again = reproduce(train("a2c", "CartPole-v1", {**BRIEF, "final_eval_episodes": 0}, name="base", hooks=False))
    assert again.run.options["eval_episodes"] == EvaluationBudget.recorded(open_run("base").path).episodes  # type: ignore[union-attr]
    assert again.same


class Endless(gymnasium.Env[np.ndarray, int]):
    """Its episodes end with the patience of those who watch."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 1.0, False, False, {}


class Faulty(Endless):
    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        raise ValueError("motor off")


def test_a_fault_of_a_step_before_training_is_the_steps(place: Path) -> None:
    with pytest.raises(PluginError, match=r"Faulty raised in step\(\), tried before training: ValueError: motor off"):
        train("a2c", Faulty, {"total_timesteps": 64}, hooks=False)


def test_episodes_without_an_end_are_cut_and_it_is_said_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no training episode has ended, an evaluation's may last until it is cut: that many steps are counted."""
    monkeypatch.setattr(evaluation_budget, "step_seconds", lambda *_: 0.01)
    brief = {"total_timesteps": 64, "n_steps": 8, "num_envs": 1, "eval_every": 32, "final_eval_episodes": 0}
    run = train("a2c", Endless, brief, hooks=False)
    assert EvaluationBudget.recorded(run.path) == EvaluationBudget(1, 10, 10.0)
    said = capsys.readouterr().err
    assert said.count("1 of 1 episodes had not ended after 1,000 steps and count as they stood") == 1


def test_what_is_measured_is_a_step_of_one_environment() -> None:
    """A vector of eight that takes its time is as slow as it is, per environment."""
    env = make_env("CartPole-v1", 8)
    plan: Any = evaluation_budget.Plan.make("a2c", "CartPole-v1", {})
    seconds = evaluation_budget.step_seconds(plan.make_learner(env.spec).agent(), env, 1, evaluation_budget.Clock(1))
    assert 0 < seconds < 0.1


@pytest.mark.parametrize(("env", "episodes"), [("CartPole-v1", 100), (f"{__name__}:Endless", 10)])
def test_evaluations_that_a_run_reacts_to_are_not_measured(
    place: Path, monkeypatch: pytest.MonkeyPatch, env: str, episodes: int
) -> None:
    """Else weights would depend on how fast the machine is at that moment."""
    monkeypatch.setattr(evaluation_budget, "step_seconds", lambda *_: 1.0)
    plan: Any = evaluation_budget.Plan.make("a2c", env, {})
    agent, clock = plan.make_learner(plan.make_env(1).spec).agent(), evaluation_budget.Clock(100, 50)
    found = [
        evaluation_budget.measured(plan, agent, clock, 1.0, 50, [10], watched=watched) for watched in (False, True)
    ]
    assert [one.episodes for one in found] == [1, episodes]
    assert found[1].fewer.startswith("the run reacts to them: evaluations play")


def test_time_limits_are_known() -> None:
    assert [make_env("CartPole-v1", num_envs).spec.limit for num_envs in (2, 16)] == [500, 500]
    assert make_env("rlplug_core.testing.envs:Chain", 2).spec.limit == 0
    assert make_env("CartPole-v1", 1, {"max_episode_steps": 20}).spec.limit == 20
    shorter = wrapped(make_env("CartPole-v1", 2), [Wrapping.parse("time-limit:steps=30")])
    assert shorter.spec.limit == 30


def test_a_run_says_what_it_took_an_environment_for(
    place: Path, rlplug: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, short: tuple[str, ...]
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    unknown = ("run", "ppo", "rlplug_core.testing.envs:Pixels", "--n-epochs", "1", "--net.hidden", "16", *short)
    done = rlplug(*unknown)
    assert done.code == 0, done.err
    assert (
        "observation space Box(1, 10, 10) of uint8 in [0, 255], action space Discrete(2); no time limit known; "
        in done.out
    )
    assert "preset: pixels; num_envs 8; nothing normalized" in done.out
    assert "environment" not in rlplug(*unknown, "--quiet").out
    as_json = rlplug(*unknown, "--json")
    assert "steps/s by itself" in as_json.err
    assert as_json.out.startswith("{")
    assert "by itself" not in rlplug("run", "ppo", "CartPole-v1", *short).out
