"""The garbage collector skips older objects while a run trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Trains a run inside and outside of a caller's own freeze, and prints the numbers of frozen objects.
SCRIPT = """
import gc
import rlplug_core
def train():
    counts = []
    rlplug_core.train(
        "ppo",
        "CartPole-v1",
        {"total_timesteps": 8, "n_steps": 8, "final_eval_episodes": 0},
        hooks=False,
        watch=lambda progress: counts.append((progress.phase, gc.get_freeze_count())),
    )
    return {count for phase, count in counts if phase == "training"}, gc.get_freeze_count()
during, after = train()
print(min(during) > 100_000, after)
gc.freeze()
print(train() == ({gc.get_freeze_count()}, gc.get_freeze_count()))
"""


def test_objects_are_frozen_while_a_run_trains(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "True 0\nTrue\n"
