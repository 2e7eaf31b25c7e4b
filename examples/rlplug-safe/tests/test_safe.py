"""rlplug-safe passes the conformance checks; the multiplier and the advantages follow their definitions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rlplug_safe.ppo_lag import PPOLag, PPOLagConfig
from rlplug_safe.shortcut import Shortcut

from rlplug_core import Clock, Context, Rollout, Seeds, Step, UsageError, gae, train
from rlplug_core.testing import Check, checks
from rlplug_core.testing.envs import Chain

SMALL = {"net.hidden": [16], "n_steps": 16, "batch_size": 32, "n_epochs": 2}


@pytest.mark.parametrize("check", checks("ppo-lag", options=SMALL), ids=str)
def test_conformance(check: Check) -> None:
    check()


@pytest.mark.parametrize(
    ("actions", "total", "cost"), [((2, 2, 2, 2), 6.0, 3.0), ((0, 2, 2, 2, 2, 1), 4.0, 0.0)]
)
def test_shortcut_costs_more_than_the_detour(
    actions: tuple[int, ...], total: float, cost: float
) -> None:
    world = Shortcut()
    world.reset()
    steps = [world.step(np.int64(action)) for action in actions]
    assert sum(reward for _, reward, *_ in steps) == total
    assert [arrived for _, _, arrived, *_ in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(info["cost"] for *_, info in steps) == steps[-1][4]["episode_cost"] == cost


def make_learner(**options: Any) -> tuple[PPOLag, Rollout]:
    """A learner, and a rollout of two rows with one end and a cost of 1 in each step of the first row."""
    env = Chain(2)
    learner = PPOLag(env.spec, PPOLagConfig(n_steps=4, **options), Context(Seeds(0)))
    return learner, _rollout(learner, env)


def _rollout(learner: PPOLag, env: Chain) -> Rollout:
    buffer, agent = learner.buffer(), learner.agent()
    memory = agent.initial(2)
    now = env.reset(0)
    clock = Clock(100)
    for t in range(4):
        act = agent.act(now.obs, now.is_first, memory, clock)
        after = env.step(act.action)
        ends = np.array([t == 2, False])
        buffer.add(
            Step(
                obs=now.obs,
                action=act.action,
                reward=after.reward,
                next_obs=after.final_obs,
                terminated=ends,
                truncated=np.zeros(2, np.bool_),
                is_first=now.is_first,
                valid=np.ones(2, np.bool_),
                ended=bool(ends.any()),
                extras={**act.extras, "cost": np.array([1.0, 0.0], np.float32)},
                recurrent_state=None,
            )
        )
        now = after
    (rollout,) = buffer.batches(clock)
    return rollout


def test_best_evaluation_keeps_the_limit() -> None:
    """The highest return within the limit ranks first, then the lowest cost."""
    learner, _ = make_learner(cost_limit=1.0)
    numbers = [(6.0, 3.0), (5.0, 1.5), (1.0, 0.0), (4.0, 1.0)]
    ranks = [
        learner.evaluation_rank(
            SimpleNamespace(mean=total, signals={"cost": (cost - 0.5, cost + 0.5)})
        )
        for total, cost in numbers
    ]
    assert sorted(ranks) == ranks


def test_multiplier_rises_above_the_limit_and_falls_to_0() -> None:
    learner, rollout = make_learner(cost_limit=1.0, multiplier_learning_rate=0.5)
    learner.move_multiplier(rollout, learner.config)
    assert (float(learner.cost), float(learner.multiplier)) == (4.0, 1.5)
    rollout.extras["cost"][:] = 0
    for _ in range(4):
        learner.move_multiplier(rollout, learner.config)
    assert float(learner.multiplier) == 0.0


def test_advantage_subtracts_the_weighted_advantage_of_the_cost() -> None:
    learner, rollout = make_learner()
    learner.multiplier.fill_(3.0)
    samples = learner.advantages(rollout, learner.config)
    parts = [rollout.reward, rollout.extras["cost"]]
    critics = [learner.predict_value, learner.predict_cost]
    advantages = []
    for numbers, critic in zip(parts, critics, strict=True):
        rollout.reward = numbers
        advantages.append(gae(rollout, *rollout.values(critic), 0.99, 0.95)[0].reshape(-1))
    expected = (advantages[0] - 3 * advantages[1]) / 4
    assert np.allclose(samples.advantage, expected, atol=1e-6)


def test_environment_without_costs_raises(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"PPOLag learns from info\['cost'\], which .* does not give"
    ):
        train("ppo-lag", "rlplug_core.testing.envs:Chain", out=tmp_path, hooks=False)
