"""An environment that raises on a forbidden action is trained, stopped, resumed, evaluated and played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlplug_core
from tests.envs import strict

FILE = Path(strict.__file__)
TINY = {"total_steps": 300, "eval_every": 150, "eval_episodes": 2, "verdict_episodes": 2}


@pytest.fixture(autouse=True)
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")


@pytest.mark.parametrize("words", [("ppo", "Strict"), ("dqn", "Inside"), ("a2c", "Several")])
def test_on_the_command_line(words: tuple[str, str], rlplug: Callable[..., Any]) -> None:
    algorithm, env = words
    options = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = rlplug("run", algorithm, f"{FILE}:{env}", *options, "--name", "one")
    assert (done.code, done.err) == (0, "")
    done = rlplug("resume", "one", "--steps", "400")
    assert (done.code, done.err) == (0, "")


def test_in_python(place: Path) -> None:
    run = rlplug_core.train("a2c", f"{FILE}:Strict", TINY)
    assert run.evaluate(3).mean == 7
