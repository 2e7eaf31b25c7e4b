"""A run that is killed and resumed equals an uninterrupted one, in environments of optional packages.

With `--resume-exact` if their state cannot be saved: worlds in C++ such as Box2D and PyBullet, locks, and models that
change during use.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.checkpoint import read
from tests.cli.warm import Fork
from tests.core.fakes import TINY, assert_same, flat
from tests.waiting import PATIENCE

OPTIONS: dict[str, Any] = {
    "num_envs": 2, "eval_every": 600, "eval_episodes": 1, "final_eval_episodes": 0, "checkpoint_every": 200,
    "total_timesteps": 600, "wrap": ["time-limit:steps=120"],
}  # fmt: skip
EXACT: dict[str, Any] = {"resume_exact": True}
ROAD = {"env.config.vehicles_count": 3, "env.config.lanes_count": 2, "env.config.simulation_frequency": 5}
TILES = {"wrap": ["minigrid.wrappers:OneHotPartialObsWrapper", *OPTIONS["wrap"]]}
ENVS: dict[str, tuple[str, dict[str, Any]]] = {
    "LunarLander-v3": ("Box2D", EXACT),
    "BipedalWalker-v3": ("Box2D", EXACT),
    "InvertedPendulumBulletEnv-v0": ("pybullet_envs_gymnasium", EXACT),
    "HopperBulletEnv-v0": ("pybullet_envs_gymnasium", EXACT),
    "dm_control/cartpole-balance-v0": ("shimmy", EXACT),
    "dm_control/walker-walk-v0": ("shimmy", EXACT),
    "PointMaze_UMaze-v3": ("gymnasium_robotics", EXACT),
    "FetchReach-v4": ("gymnasium_robotics", {}),
    "highway-fast-v0": ("highway_env", ROAD),
    "MiniGrid-MemoryS7-v0": ("minigrid", TILES),
    "parking-v0": ("highway_env", {"env.config.simulation_frequency": 5}),
}
#: State that differs between two runs of one seed: highway-env's reset draws an action for its `info` from a generator
#: that is never seeded.
UNSEEDED = {"highway_env": ("/action_space/random/",)}
#: Trains until the process kills itself in the step with the number of the last argument.
CHILD = """
import json, os, signal, sys
from rlplug_envs.vector import SerialEnvs
from rlplug_core.runs.api import train
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


def final(run: Run, module: str) -> Any:
    saved = read(next(run.directory.checkpoints_path.glob("final-*")))[0]
    saved["events"].pop("wall")
    left_out = UNSEEDED.get(module, ())
    return {path: value for path, value in flat(saved).items() if not any(part in path for part in left_out)}


@pytest.mark.filterwarnings("ignore")  # modules made by SWIG warn on import, and crash if the warning is an error
@pytest.mark.parametrize(
    "env", [pytest.param(env, marks=pytest.mark.slow if env == "BipedalWalker-v3" else ()) for env in ENVS]
)
def test_killed_run_resumes_exactly(fork: Callable[..., Fork], env: str, tmp_path: Path) -> None:
    module, extra = ENVS[env]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    options = {**OPTIONS, **extra}
    whole = train(TINY, env, options, out=tmp_path, name="whole", hooks=False)
    child = fork("-c", CHILD, TINY, env, tmp_path, "155", env={**os.environ, "OPTIONS": json.dumps(options)})
    assert child.wait(PATIENCE) == -signal.SIGKILL
    part = resume(tmp_path / "part", hooks=False)
    assert_same(final(part, module), final(whole, module))
    assert read(next(part.directory.checkpoints_path.glob("final-*")))[1]["exact"]
