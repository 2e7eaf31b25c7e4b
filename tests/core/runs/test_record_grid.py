"""Records of all seeds have the same env steps, so that a mirror can average over them."""

from __future__ import annotations

from pathlib import Path

from rlplug_core.runs.api import train
from rlplug_core.runs.journal import read
from tests.core.fakes import ENVS, TINY


def test_records_are_at_multiples_of_their_intervals(tmp_path: Path) -> None:
    options = {"total_timesteps": 100, "num_envs": 7, "eval_every": 25, "log_every": 10, "eval_episodes": 2}
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path, hooks=False)
    steps = {kind: [r.step for r in read(run.journal) if r.kind == kind] for kind in ("metrics", "evaluation", "end")}
    assert steps["end"] == [105]
    assert steps["evaluation"] == [25, 50, 75, 100]
    assert steps["metrics"] == [*range(10, 101, 10)]
