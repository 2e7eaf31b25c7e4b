"""Loaded policies that sample: each row of a batch gets its own action, for all batch sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlplug_core.loop.plan import Plan
from rlplug_core.runs.policy import Policy
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

SMALL = {"total_timesteps": 10_000, "net.hidden": [8]}
CASES = {
    "ppo": ("ppo", "Continuous", SMALL), "iql": ("iql", "Continuous", SMALL), "sac": ("sac", "Continuous", SMALL),
    "td3": ("td3", "Continuous", SMALL), "dqn": ("dqn", "Chain", {**SMALL, "exploration_initial_eps": 0.5}),
    "ou": ("ddpg", "Continuous", {**SMALL, "action_noise": "ornstein-uhlenbeck"}),
    "discrete": ("ppo", "Chain", SMALL), "acer": ("acer-continuous", "Continuous", {"total_timesteps": 10_000}),
}  # fmt: skip


@for_each("case", CASES)
def test_each_row_gets_its_own_action(case: str) -> None:
    algorithm, name, options = CASES[case]
    plan = Plan.make(algorithm, f"rlplug_core.testing.envs:{name}", options)
    env = plan.make_env(1)
    policy: Any = Policy(plan.make_learner(env.spec).agent(), env, deterministic=False)
    size = env.spec.obs.shape[0]  # type: ignore[index]
    for rows in (12, 1, 12):
        actions = policy(np.zeros((rows, size), np.float32))
        assert len(actions) == rows
        assert rows == 1 or len(np.unique(actions)) > 1
    assert np.shape(policy(np.zeros(size, np.float32))) == env.spec.action.shape
