"""Runs in environments without a preset: their messages and their evaluations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlplug_core import train
from rlplug_core.errors import PluginError
from rlplug_core.plugins import make_env
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.runs import session
from rlplug_core.runs.listing import records
from tests.cli.conftest import Result

#: Two evaluations in few steps, with the default numbers of episodes.
BRIEF = {"total_timesteps": 64, "n_steps": 8, "num_envs": 1, "eval_every": 32, "env.max_episode_steps": 10}


def test_slow_evaluations_print_their_time_and_play_the_same_episodes(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = train("a2c", "CartPole-v1", BRIEF, name="fast", hooks=False)
    assert "evaluation plays" not in capsys.readouterr().err
    ticks = itertools.count(step=40.0)  # an evaluation takes 40 s by this clock
    monkeypatch.setattr(session.time, "monotonic", lambda: next(ticks))
    slow = train("a2c", "CartPole-v1", BRIEF, name="slow", hooks=False)
    errors = capsys.readouterr().err
    assert "each evaluation plays 10 episodes, about 40 s, 2 times in this run; --eval-episodes" in errors
    assert "the final evaluation plays 200 episodes, about 800 s;" in errors
    kinds = ("evaluation", "final_eval")
    played = [[record.data for record in records(run.path) if record.kind in kinds] for run in (fast, slow)]
    assert played[0] == played[1]
    assert played[0][-1]["episodes"] == 100


class Endless(gymnasium.Env[np.ndarray, int]):
    """Its episodes never end."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 1.0, False, False, {}


class Faulty(Endless):
    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        raise ValueError("motor off")


def test_error_in_a_step_before_training_is_reported(place: Path) -> None:
    with pytest.raises(PluginError, match=r"Faulty raised in step\(\), tried before training: ValueError: motor off"):
        train("a2c", Faulty, {"total_timesteps": 64}, hooks=False)


def test_endless_episodes_are_cut_with_one_warning(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brief = {"total_timesteps": 64, "n_steps": 8, "num_envs": 1, "eval_every": 32, "final_eval_episodes": 0}
    train("a2c", Endless, brief, hooks=False)
    errors = capsys.readouterr().err
    assert errors.count("10 of 10 episodes had not ended after 1,000 steps and count with their rewards so far") == 1


def test_time_limits_are_known() -> None:
    assert [make_env("CartPole-v1", num_envs).spec.limit for num_envs in (2, 16)] == [500, 500]
    assert make_env("rlplug_core.testing.envs:Chain", 2).spec.limit == 0
    assert make_env("CartPole-v1", 1, {"max_episode_steps": 20}).spec.limit == 20
    shorter = wrap_env(make_env("CartPole-v1", 2), [WrapperSpec.parse("time-limit:steps=30")])
    assert shorter.spec.limit == 30


def test_run_describes_an_unknown_environment(
    place: Path, rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, short: tuple[str, ...]
) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    unknown = ("run", "ppo", "rlplug_core.testing.envs:Pixels", "--n-epochs", "1", "--net.hidden", "16", *short)
    result = rlplug(*unknown)
    assert result.code == 0, result.err
    assert (
        "observation space Box(1, 10, 10) of uint8 in [0, 255], action space Discrete(2); no time limit known; "
        in result.out
    )
    assert "preset: pixels; num_envs 8; nothing normalized" in result.out
    assert "environment" not in rlplug(*unknown, "--quiet").out
    as_json = rlplug(*unknown, "--json")
    assert "steps/s by itself" in as_json.err
    assert as_json.out.startswith("{")
    assert "by itself" not in rlplug("run", "ppo", "CartPole-v1", *short).out
