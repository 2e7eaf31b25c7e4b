"""Step sizes that fall over a run."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan

FALLING: dict[str, dict[str, object]] = {
    "a2c": {"anneal_lr": True, "learning_rate": 0.5},
    "ppo": {"anneal_lr": True, "learning_rate": 0.5},
    "trpo": {"critic_learning_rate": "linear(0.5,0)"},
}


@pytest.mark.parametrize("algorithm", FALLING)
@pytest.mark.parametrize("rollouts", [1, 4])
def test_a_step_size_that_falls_to_0_is_that_of_the_rollouts_beginning(algorithm: str, rollouts: int) -> None:
    """So the first is whole and the last not nothing: no rollout is collected in vain."""
    total = 3 * 8 * rollouts
    options = {"num_envs": 3, "n_steps": 8, "total_timesteps": total, "runner": "sync", **FALLING[algorithm]}
    runner: Any = build(Plan.make(algorithm, "rlplug_core.testing.envs:Chain", options), Clock(total))
    used: list[float] = []
    rule = runner.learner.optimizers[0].rule
    step = rule.step

    def seen(parameters: Any, gradient: Any, state: Any, lr: float) -> None:
        used.append(lr)
        step(parameters, gradient, state, lr)

    rule.step = seen
    runner.run(lambda: None)
    assert list(dict.fromkeys(used)) == pytest.approx([0.5 * (1 - done / rollouts) for done in range(rollouts)])
