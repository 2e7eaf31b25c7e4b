"""MuJoCo environments have their state in C, continue exactly and print nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.state_format import Uncapturable
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.vector import SerialEnvs
from tests.cli.warm import Fork
from tests.envs.continuing import continue_in_new_process
from tests.waiting import PATIENCE

pytest.importorskip("mujoco", reason="the extra rlplug-envs[mujoco] is not installed")

NAMES = (
    "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5", "Swimmer-v5",
    "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Pusher-v5",
)  # fmt: skip


def test_mujoco_continues_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    results = continue_in_new_process(fork, [(name, 2) for name in NAMES], tmp_path)
    assert results["Hopper-v5_2"][1] > 20  # with ends of episodes
    assert results["HalfCheetah-v5_2"][1] == 0


class Heavier(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The hopper has another weight in each episode."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        model: Any = self.get_wrapper_attr("model")
        model.body_mass[1] = 1 + self.np_random.random()
        return obs, info


def test_model_that_changes_is_inexact() -> None:
    env = SerialEnvs(lambda: Heavier(gymnasium.make("Hopper-v5")), 1, "Heavier-v0")
    assert env.spec.inexact == "attribute 'model' is not the MuJoCo model that was captured; it changes during use"


@pytest.mark.parametrize(
    ("name", "arguments", "camera"),
    [("Hopper-v5", {}, 0), ("InvertedPendulum-v5", {}, -1), ("Hopper-v5", {"camera_id": -1}, -1)],
)
def test_film_camera_follows_the_body(name: str, arguments: dict[str, object], camera: int) -> None:
    """Without a tracking camera the free one is used; a chosen camera is kept."""
    shown: Any = Gymnasium(arguments).make_shown(name, "rgb_array")
    assert shown.envs[0].unwrapped.mujoco_renderer.camera_id == camera


def test_restore_without_a_simulation_raises() -> None:
    saved, fresh = (gymnasium.make("Swimmer-v5").unwrapped for _ in range(2))
    saved.reset(seed=0)
    fresh.data = None  # type: ignore[attr-defined]
    with pytest.raises(Uncapturable, match="attribute 'data' was a MuJoCo simulation, here it is a NoneType"):
        restore(fresh, capture(saved))


def test_derived_values_are_restored() -> None:
    """Ant's reward needs the position of its torso, which MuJoCo derives in the step before."""
    saved, fresh = (gymnasium.make("Ant-v5").unwrapped for _ in range(2))
    for env, seed in ((saved, 0), (fresh, 1)):
        env.reset(seed=seed)
        for _ in range(20):
            env.step(np.full(8, 0.5, np.float32))
    restore(fresh, capture(saved))
    simulations: list[Any] = [saved.data, fresh.data]  # type: ignore[attr-defined]
    for name in ("qpos", "qvel", "qacc_warmstart", "xpos", "cfrc_ext", "cinert"):
        expected, restored = (getattr(simulation, name) for simulation in simulations)
        assert expected.tobytes() == restored.tobytes(), name


def test_mujoco_prints_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Gymnasium().make("HalfCheetah-v5", 2)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


#: Steps an environment in a process that has not imported MuJoCo yet.
STEPS = """
from rlplug_envs.families.classic import Gymnasium
env = Gymnasium().make("InvertedPendulum-v5", 1)
env.reset(0)
print(env.step(env.spec.action.sample()[None]).count)
"""


def test_mujoco_steps_without_rendering() -> None:
    """Importing MuJoCo loads its renderer and fails if that fails."""
    words = [sys.executable, "-W", "ignore", "-c", STEPS]
    environment = {**os.environ, "MUJOCO_GL": "crayons"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert "rlplug: MuJoCo draws nothing here: MUJOCO_GL=crayons does not work (RuntimeError: " in done.stderr
