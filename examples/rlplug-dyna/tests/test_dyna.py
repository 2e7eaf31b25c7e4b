"""rlplug-dyna passes the conformance checks; its model learns, and planning replaces real steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlplug_core import train
from rlplug_core.runs.journal import read
from rlplug_core.testing import Check, checks


@pytest.mark.parametrize("check", checks("dyna"), ids=str)
def test_conformance(check: Check) -> None:
    check()


def test_model_learns_and_planning_replaces_real_steps(tmp_path: Path) -> None:
    """Random actions get 0.5 on a chain of five places; after 400 steps, planning gets more than learning only."""
    means = {}
    errors = []
    for planning in (0, 8):
        options = {
            "total_timesteps": 400,
            "planning_steps": planning,
            "learning_starts": 64,
            "train_freq": 4,
            "log_every": 40,
            "eval_every": 400,
            "eval_episodes": 2,
            "final_eval_episodes": 0,
        }
        totals = []
        for seed in range(3):
            run = train(
                "dyna",
                "rlplug_core.testing.envs:Chain",
                {**options, "seed": seed},
                out=tmp_path,
                hooks=False,
                name=f"{planning}-{seed}",
            )
            totals.append(run.evaluate(20, checkpoint="final").mean)
        means[planning] = sum(totals) / 3
        errors = [
            record.data["loss/model"]
            for record in read(run.journal, kinds=("metrics",))
            if "loss/model" in record.data
        ]
    assert errors[-1] < errors[0] / 2
    assert means[8] == 1.0
    assert means[0] < means[8]
