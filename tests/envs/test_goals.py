"""The rewards of other goals, taken from what an environment says about its own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.wrappers.rewards import ScaleReward, ScaleRewardConfig

GOAL = spaces.Box(-1, 1, (2,), np.float64)
OBS = spaces.Dict({"observation": GOAL, "achieved_goal": GOAL, "desired_goal": GOAL})


class Point(gymnasium.Env[Any, Any]):
    """A point that moves to another; `compute_reward` takes whole batches, as in gymnasium-robotics."""

    observation_space = OBS
    action_space = spaces.Box(-0.1, 0.1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.place = np.clip(self.place + action, -1, 1)
        return self._obs(), 0.0, False, False, {}

    def _obs(self) -> Any:
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.5).astype(np.float64)


class OneByOne(Point):
    """The same, for one pair of goals at a time, with an end."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert achieved_goal.shape == (2,)
        return -float(np.linalg.norm(achieved_goal - desired_goal) > 0.5)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return bool(np.linalg.norm(achieved_goal - desired_goal) <= 0.5)


class Asks(Point):
    """Its rewards depend on what only a step knows."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return info["reward"]


def goals(env: type[Point]) -> Any:
    return SerialEnvs(env, 2, "Point").spec.goals


@pytest.mark.parametrize("env", [Point, OneByOne])
def test_a_batch_of_goals_is_paid_as_each_alone(env: type[Point]) -> None:
    found, (achieved, desired) = goals(env), np.random.default_rng(1).uniform(-1, 1, (2, 9, 2))
    expected = [env().compute_reward(*pair, {}) for pair in zip(achieved, desired, strict=True)]
    reward = found.reward(achieved, desired)
    assert reward.tolist() == expected
    assert reward.dtype == np.float32
    assert {-1.0, 0.0} == set(expected)
    if env is Point:
        assert found.terminated is None
    else:
        assert found.terminated(achieved, desired).tolist() == [each == 0 for each in expected]


def test_rewards_that_need_more_than_goals_are_named() -> None:
    with pytest.raises(BadEnv, match=r"compute_reward.*let it depend on the goals alone"):
        goals(Asks)


def test_wrappers_that_change_rewards_leave_no_goals() -> None:
    env = SerialEnvs(Point, 2, "Point")
    assert ScaleReward(env, ScaleRewardConfig()).spec.goals is None
    assert SerialEnvs(lambda: gymnasium.make("CartPole-v1"), 1).spec.goals is None
