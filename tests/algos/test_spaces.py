"""Spaces that do not start at 0, or have no dimension: every algorithm that takes them learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.algos.test_schedules import OFF, ROLLOUTS, options_of
from tests.tables import for_each

PROBES = f"{Path(__file__).with_name('probes.py')}:"


@for_each("algorithm", [
        "a2c", "a3c", "acer", "acktr", "appo", "dqn", "impala", "nstep-q", "ppo", "ppo-recurrent", "r2d2",
        "sac-discrete", "trpo", "vac", "vpg", "vqn", "vsarsa",
    ])  # fmt: skip
def test_observations_that_start_at_5(train_runner: Callable[..., Any], algorithm: str) -> None:
    """With truncations within rollouts, more of them than rows."""
    recurrent = {"n_steps": 24, "batch_size": 24} if algorithm == "ppo-recurrent" else {}
    long = {"n_steps": 24} if algorithm in ROLLOUTS and algorithm != "vpg" else {}
    options = {**options_of(algorithm), **(OFF if algorithm == "dqn" else {}), **long, **recurrent}
    runner = train_runner(algorithm, f"{PROBES}Shifted", **{**options, "total_timesteps": 150})
    assert runner.clock.updates > 0


@for_each("algorithm", ["a2c", "acer-continuous", "crossq", "ddpg", "ppo", "sac", "td3", "tqc", "trpo"])
def test_actions_of_a_single_number(train_runner: Callable[..., Any], algorithm: str) -> None:
    runner = train_runner(algorithm, f"{PROBES}Scalar", **options_of(algorithm))
    assert runner.clock.updates > 0
