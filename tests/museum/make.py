"""Write runs, exports and shared agents of this version into the museum; later versions must load them.

    python tests/museum/make.py

A release adds a folder. Existing folders never change.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from rlplug_core import __version__, load, train
from rlplug_core.runs import push

HERE = Path(__file__).parent
#: The runs by name: algorithm and options.
RUNS = {
    "ppo": {"net.hidden": [8], "n_steps": 16, "num_envs": 2, "batch_size": 16, "n_epochs": 2},
    "dqn": {"net.hidden": [8], "buffer_size": 64, "learning_starts": 16, "batch_size": 8},
    "ppo-recurrent": {
        "net.hidden": [8],
        "recurrent_hidden_size": 4,
        "n_steps": 16,
        "num_envs": 2,
        "net.output_gain": 1.0,
    },
}
SHORT = {"total_timesteps": 64, "eval_every": 64, "eval_episodes": 1, "final_eval_episodes": 1, "keep_checkpoints": 1}
#: The observations of the recorded actions.
OBSERVATIONS = np.random.default_rng(1).uniform(-2, 2, (20, 4)).astype(np.float32)


def main() -> None:
    place = HERE / __version__
    for name, options in RUNS.items():
        run = train(name, "CartPole-v1", {**SHORT, **options}, out=place, name=name, hooks=False)
        for checkpoint in (run.path / "checkpoints").glob("step-*"):
            shutil.rmtree(checkpoint)
        run.export(place / f"{name}-export")
        push(run, str(place / f"{name}-shared"))
        policy = load(run.path)
        actions = [int(policy(observation)) for observation in OBSERVATIONS]
        (place / f"{name}.json").write_text(json.dumps(actions) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
