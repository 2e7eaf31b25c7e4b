"""Learning rates that fall during a run."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.schedules import Schedules

FALLING: dict[str, dict[str, object]] = {
    "a2c": {"anneal_lr": True, "learning_rate": 0.5},
    "ppo": {"anneal_lr": True, "learning_rate": 0.5},
    "trpo": {"critic_learning_rate": "linear(0.5,0)"},
}


@pytest.mark.parametrize("algorithm", FALLING)
@pytest.mark.parametrize("rollouts", [1, 4])
def test_annealed_learning_rate_is_that_of_the_start_of_the_rollout(algorithm: str, rollouts: int) -> None:
    """So the first rate is the full one, and the last one is not 0."""
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


@pytest.mark.parametrize(
    ("algorithm", "options", "expected"),
    [
        ("ppo", {"learning_rate": 0.5, "anneal_lr": True, "clip_range": "linear(0.4,0.2)"},
         {"learning_rate": 0.25, "clip_range": 0.3}),
        ("a2c", {"learning_rate": 0.5, "anneal_lr": False, "ent_coef": "linear(0.2,0)"},
         {"learning_rate": 0.5, "ent_coef": 0.1}),
        ("dqn", {"exploration_final_eps": 0.1, "exploration_fraction": 1.0, "learning_rate": 0.5, "anneal_lr": False},
         {"learning_rate": 0.5, "epsilon": 0.55}),
        ("dqn", {"noisy": "factorized", "learning_rate": 0.5, "anneal_lr": False}, {"learning_rate": 0.5}),
    ],
)  # fmt: skip
def test_logs_contain_current_values_of_schedules(
    algorithm: str, options: dict[str, object], expected: dict[str, float]
) -> None:
    """Checked in the middle of a run, after a controller halved the learning rates."""
    plan = Plan.make(algorithm, "rlplug_core.testing.envs:Chain", {"num_envs": 2, "runner": "sync", **options})
    clock = Clock(100)
    runner: Any = build(plan, clock)
    clock.steps = 50
    clock.scale = 0.5
    metrics = Schedules(runner.learner).metrics(clock)
    expected["learning_rate"] *= 0.5
    assert metrics == pytest.approx({f"schedule/{name}": value for name, value in expected.items()})
