"""Training in environments that nobody here wrote: what they do differently is accepted, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core import train
from rlplug_core.runs.checkpoint import read

SHORT = {"total_timesteps": 300, "num_envs": 1, "eval_episodes": 1, "final_eval_episodes": 1}


class Plain(gymnasium.Env[Any, Any]):
    """Episodes of five steps."""

    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observe(), 1.0, self.time == 5, False, {}


class Chain(Plain):
    """Its state is nested one level deeper with each step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.head: Any = None
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.head = [int(action), self.head]
        self.time += 1
        return self.observe(), 1.0, self.time == 600, False, {}


def test_a_run_with_state_too_deep_to_capture_continues_and_says_it_is_inexact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**SHORT, "total_timesteps": 1000, "checkpoint_every": 100}
    run = train("ppo", Chain, options, out=tmp_path, hooks=False)
    assert run.status == "finished"
    reason = "Chain: attribute 'head' is nested more than 100 levels deep, which cannot be captured"
    manifests = [read(place)[1] for place in run.directory.checkpoints_path.iterdir()]
    assert any(not one["exact"] and one["inexact"].endswith(reason) for one in manifests)
    assert capsys.readouterr().err.count("a resume from here on will not be exact: ") == 1


class Stuck(Plain):
    def close(self) -> None:
        raise RuntimeError("cannot close")


def test_an_environment_that_raises_in_close_is_trained_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("ppo", Stuck, SHORT, out=tmp_path, hooks=False).status == "finished"
    said = capsys.readouterr().err
    assert said.count("Stuck raised in close(): RuntimeError: cannot close; everything else continues") == 1
