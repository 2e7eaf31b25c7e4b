"""The curriculum passes the conformance checks and reaches a goal that random actions never find."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlplug_curriculum.controller import GoalCurriculum, GoalCurriculumConfig

from rlplug_core import train
from rlplug_core.protocols import Controller
from rlplug_core.runs.journal import read
from rlplug_core.testing import Check, controller_checks

#: A type checker compares the class with the protocol here.
CONTROLLER: Controller = GoalCurriculum(GoalCurriculumConfig())


@pytest.mark.parametrize("check", controller_checks("goal-curriculum"), ids=str)
def test_conformance(check: Check) -> None:
    check()


@pytest.mark.parametrize(("controllers", "reached"), [((), 0.0), (("goal-curriculum",), 1.0)])
def test_goal_is_reached_only_with_the_curriculum(
    tmp_path: Path, controllers: tuple[str, ...], reached: float
) -> None:
    options = {
        "total_timesteps": 100_000,
        "num_envs": 8,
        "eval_episodes": 5,
        "final_eval_episodes": 0,
        "seed": 1,
        "controller": controllers,
        "eval_every": 100_000,
        "ent_coef": 0.02,
    }
    run = train("a2c", "rlplug_curriculum.corridor:Corridor", options, out=tmp_path, hooks=False)
    assert run.evaluate(5, checkpoint="final").mean == reached
    distances = [record.data["goal"] for record in read(run.journal, kinds=("settings",))]
    assert distances == sorted(distances)
