"""A run that is killed and resumed equals one that never stopped, in environments of packages that are not always here.

With `--resume-exact` where their state can be saved by nobody: worlds in C++, as those of Box2D and PyBullet, locks,
and models that change in use.
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
ANEW: dict[str, Any] = {"resume_exact": True}
ROAD = {"env.config.vehicles_count": 3, "env.config.lanes_count": 2, "env.config.simulation_frequency": 5}
TILES = {"wrap": ["minigrid.wrappers:OneHotPartialObsWrapper", *OPTIONS["wrap"]]}
ENVS: dict[str, tuple[str, dict[str, Any]]] = {
    "LunarLander-v3": ("Box2D", ANEW),
    "BipedalWalker-v3": ("Box2D", ANEW),
    "InvertedPendulumBulletEnv-v0": ("pybullet_envs_gymnasium", ANEW),
    "HopperBulletEnv-v0": ("pybullet_envs_gymnasium", ANEW),
    "dm_control/cartpole-balance-v0": ("shimmy", ANEW),
    "dm_control/walker-walk-v0": ("shimmy", ANEW),
    "PointMaze_UMaze-v3": ("gymnasium_robotics", ANEW),
    "FetchReach-v4": ("gymnasium_robotics", {}),
    "highway-fast-v0": ("highway_env", ROAD),
    "MiniGrid-MemoryS7-v0": ("minigrid", TILES),
    "parking-v0": ("highway_env", {"env.config.simulation_frequency": 5}),
}
#: What two runs of one seed do not share: highway-env's reset draws from a generator that no seed reaches, for an
#: action that its `info` tells of and nothing else.
UNSEEDED = {"highway_env": ("/action_space/random/",)}
#: Trains until the process kills itself, in the step that its last argument says.
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


@pytest.mark.filterwarnings("ignore")  # what SWIG made warns as it is imported, and crashes where that is an error
@pytest.mark.parametrize(
    "env", [pytest.param(env, marks=pytest.mark.slow if env == "BipedalWalker-v3" else ()) for env in ENVS]
)
def test_a_killed_run_resumes_to_the_same_bits(fork: Callable[..., Fork], env: str, tmp_path: Path) -> None:
    module, own = ENVS[env]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    options = {**OPTIONS, **own}
    whole = train(TINY, env, options, out=tmp_path, name="whole", hooks=False)
    child = fork("-c", CHILD, TINY, env, tmp_path, "155", env={**os.environ, "OPTIONS": json.dumps(options)})
    assert child.wait(PATIENCE) == -signal.SIGKILL
    part = resume(tmp_path / "part", hooks=False)
    assert_same(final(part, module), final(whole, module))
    assert read(next(part.directory.checkpoints_path.glob("final-*")))[1]["exact"]
