"""Runs in environments that raise on forbidden actions: training, resume, evaluation, loaded policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlplug_core
from rlplug_core.errors import UsageError
from tests.envs import strict, walks

FILE = Path(strict.__file__)
TINY = {"total_timesteps": 300, "eval_every": 150, "eval_episodes": 2, "final_eval_episodes": 2}


pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.mark.parametrize("words", [("ppo", "Strict"), ("dqn", "Inside"), ("a2c", "Several")])
def test_run_and_resume_on_the_command_line(words: tuple[str, str], rlplug: Callable[..., Any]) -> None:
    algorithm, env = words
    options = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    result = rlplug("run", algorithm, f"{FILE}:{env}", *options, "--name", "one")
    assert (result.code, result.err) == (0, "")
    result = rlplug("resume", "one", "--total-timesteps", "400")
    assert (result.code, result.err) == (0, "")


def test_train_and_evaluate_in_python(place: Path) -> None:
    """Episodes end after seven steps of allowed actions, also with a loaded policy in the bare environment."""
    run = rlplug_core.train("a2c", f"{FILE}:Strict", TINY)
    assert run.evaluate(3).mean == 7
    policy = rlplug_core.load(run)
    env = strict.Strict()
    steps = 0
    obs, info = env.reset(seed=0)
    ended = False
    while not ended:
        obs, _, ended, _, info = env.step(policy({"obs": obs, "action_mask": info["action_mask"]}))
        steps += 1
    assert steps == 7


def test_loaded_policy_takes_a_tuple(place: Path) -> None:
    """The observation comes from the environment; the mask from `info` must be added to it."""
    policy = rlplug_core.load(rlplug_core.train("a2c", f"{walks.__file__}:Rich", TINY))
    obs, info = walks.Rich().reset(seed=0)
    assert isinstance(obs["pair"], tuple)
    assert info["action_mask"][policy({**obs, **info})] == 1
    with pytest.raises(
        UsageError, match=r"lacks 'action_mask', which the policy sees; give it {'action_mask': info\['act"
    ):
        policy(obs)
