"""Box2D and PyBullet keep their worlds in C++: with `--resume-exact` a resumed run equals one that never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.runs.checkpoint import read
from rlplug_core.runs.run import Run, resume, train
from tests.core.fakes import TINY, assert_same

OPTIONS: dict[str, Any] = {
    "num_envs": 2, "eval_every": 600, "eval_episodes": 1, "final_eval_episodes": 0, "checkpoint_every": 200,
    "total_timesteps": 600, "resume_exact": True,
}  # fmt: skip
ENVS = {
    "LunarLander-v3": "Box2D", "BipedalWalker-v3": "Box2D", "InvertedPendulumBulletEnv-v0": "pybullet_envs_gymnasium",
    "HopperBulletEnv-v0": "pybullet_envs_gymnasium",
}  # fmt: skip
#: Trains until the process kills itself, in the step that its last argument says.
CHILD = """
import json, os, signal, sys
from rlplug_envs.vector import SerialEnvs
from rlplug_core.runs.run import train
steps, step = int(sys.argv[4]), SerialEnvs.step
def counted(self, action):
    global steps
    steps -= len(action) == 2
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, action)
SerialEnvs.step = counted
train(sys.argv[1], sys.argv[2], json.loads(os.environ["OPTIONS"]), out=sys.argv[3], name="part", hooks=False)
"""


def final(run: Run) -> Any:
    saved = read(next(run.directory.checkpoints_path.glob("final-*")))[0]
    saved["events"].pop("wall")
    return saved


@pytest.mark.filterwarnings("ignore")  # what SWIG made warns as it is imported, and crashes where that is an error
@pytest.mark.parametrize("env", ENVS)
def test_a_killed_run_resumes_to_the_same_bits(env: str, tmp_path: Path) -> None:
    if find_spec(ENVS[env]) is None:
        pytest.skip(f"{ENVS[env]} is not installed")
    options = {**OPTIONS, "wrap": ["time-limit:steps=120"]}
    whole = train(TINY, env, options, out=tmp_path, name="whole", hooks=False)
    words = [sys.executable, "-c", CHILD, TINY, env, str(tmp_path), "155"]
    child = subprocess.run(words, check=False, env={**os.environ, "OPTIONS": json.dumps(options)}, timeout=300)
    assert child.returncode == -signal.SIGKILL
    part = resume(tmp_path / "part", hooks=False)
    assert_same(final(part), final(whole))
    assert read(next(part.directory.checkpoints_path.glob("final-*")))[1]["exact"]
