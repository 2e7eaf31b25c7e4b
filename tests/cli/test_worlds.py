"""Worlds with many agents can be classes, functions, objects or names in a file, like single environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pettingzoo.utils import parallel_to_aec

from rlplug_core import train
from rlplug_core.errors import PluginError
from tests.envs.games import Dilemma

SHORT = {"total_timesteps": 400, "num_envs": 2, "eval_episodes": 2, "final_eval_episodes": 2}


class CountsClose(Dilemma):
    """Counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def make(rounds: int = 4) -> Dilemma:
    return Dilemma(rounds)


def make_turns() -> Any:
    return parallel_to_aec(Dilemma(4))


@pytest.mark.parametrize(
    "form", [Dilemma, make, make_turns, f"{__name__}:CountsClose", f"{__name__}:make", f"{__file__}:make"]
)
def test_class_or_function_makes_worlds(form: Any, tmp_path: Path) -> None:
    run = train("ppo", form, SHORT, out=tmp_path, hooks=False)
    assert run.status == "finished"
    assert len(run.evaluate(episodes=2).returns) == 4


def test_arguments_reach_the_world(tmp_path: Path) -> None:
    run = train("ppo", make, {**SHORT, "env": {"rounds": 3}}, out=tmp_path, hooks=False)
    assert set(run.evaluate(episodes=2).lengths) == {3}


def test_object_is_one_world_and_is_not_closed(tmp_path: Path) -> None:
    world = CountsClose()
    run = train("ppo", world, {**SHORT, "num_envs": 1}, out=tmp_path, hooks=False)
    assert run.status == "finished"
    assert world.closed == 0


def test_same_world_twice_is_refused(tmp_path: Path) -> None:
    world = Dilemma()
    with pytest.raises(PluginError, match="returned the same environment twice"):
        train("ppo", lambda: world, SHORT, out=tmp_path, hooks=False)
