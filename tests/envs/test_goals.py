"""Goal environments: rewards of other goals by the environment's own `compute_reward`."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from rlplug_core.buffers.hindsight import goals_of
from rlplug_core.errors import UsageError
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
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
    """A point with functions for one pair of goals at a time; reaching the goal terminates."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert achieved_goal.shape == (2,)
        return -float(np.linalg.norm(achieved_goal - desired_goal) > 0.5)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return bool(np.linalg.norm(achieved_goal - desired_goal) <= 0.5)


class Indexing(OneByOne):
    """Indexes the numbers of one goal; with a batch it would index rows without an error."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        distance = np.abs(achieved_goal[0] - desired_goal[0]) + np.abs(achieved_goal[1] - desired_goal[1])
        return -(distance > 1).astype(np.float64)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.compute_reward(achieved_goal, desired_goal, info) == 0


class Locked(OneByOne):
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class NeedsInfo(Point):
    """Its rewards depend on the `info` of a step."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return info["reward"]


def goals(env: type[Point]) -> Any:
    return SerialEnvs(env, 2, "Point").spec.goals


class Refuses(OneByOne):
    """Raises its own error for a batch."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        if np.ndim(achieved_goal) > 1:
            raise RuntimeError("one goal, please")
        return super().compute_reward(achieved_goal, desired_goal, info)


class Unending(Point):
    """`compute_terminated` raises."""

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        raise RuntimeError("ask later")


class Strict(OneByOne):
    """Takes goals only in the dtypes that it gives: achieved as int16 places on a grid, desired as float64."""

    observation_space = spaces.Dict(
        {"observation": GOAL, "achieved_goal": spaces.MultiDiscrete([9, 9], dtype=np.int16), "desired_goal": GOAL}
    )

    def _obs(self) -> Any:
        return {"observation": self.place, "achieved_goal": np.int16(4 * self.place + 4), "desired_goal": self.goal}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert (achieved_goal.dtype, desired_goal.dtype) == (np.int16, np.float64)
        return super().compute_reward(achieved_goal / 4 - 1, desired_goal, info)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.compute_reward(achieved_goal, desired_goal, info) == 0


class Batches(Strict):
    """Takes batches of goals, which are matrices, only in the dtypes that it gives."""

    observation_space = spaces.Dict(
        {
            "observation": GOAL,
            "achieved_goal": spaces.Box(-9, 9, (1, 2), np.int16),
            "desired_goal": spaces.Box(-1, 1, (1, 2), np.float64),
        }
    )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert (achieved_goal.dtype, desired_goal.dtype) == (np.int16, np.float64)
        assert achieved_goal.shape[-2:] == desired_goal.shape[-2:] == (1, 2)
        return -(np.abs(achieved_goal - desired_goal).sum((-2, -1)) > 1).astype(np.float64)


class Floats(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Gives all parts as flat vectors of float32."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict(dict.fromkeys(env.observation_space, spaces.Box(-9, 9, (2,), np.float32)))

    def observation(self, observation: Any) -> Any:
        return {name: np.ravel(part).astype(np.float32) for name, part in observation.items()}


@pytest.mark.parametrize("env", [Strict, Batches])
@pytest.mark.parametrize("wrapped", [False, True])
def test_goals_get_the_environments_dtype_and_shape(env: type[Point], wrapped: bool) -> None:
    """Agents and replay buffers have float32."""
    spec = SerialEnvs(lambda: Floats(env()) if wrapped else env(), 1, "Point", inexact="a test").spec
    assert spec.no_goals == ""
    assert spec.goals is not None
    assert spec.goals.terminated is not None
    shape = (2,) if wrapped or env is Strict else (1, 2)
    achieved = np.full((3, *shape), 4, np.float32)
    desired = np.zeros((3, *shape), np.float32)
    expected = 0 if env is Strict else -1
    assert spec.goals.reward(achieved, desired).tolist() == [expected] * 3
    assert spec.goals.terminated(achieved, desired).tolist() == [expected == 0] * 3


@pytest.mark.parametrize("env", [Point, OneByOne, Refuses, Indexing])
def test_batch_of_goals_gets_the_rewards_of_single_goals(env: type[Point]) -> None:
    found = goals(env)
    achieved, desired = np.random.default_rng(1).uniform(-1, 1, (2, 9, 2))
    expected = [env().compute_reward(*pair, {}) for pair in zip(achieved, desired, strict=True)]
    reward = found.reward(achieved, desired)
    assert reward.tolist() == expected
    assert reward.dtype == np.float32
    assert {-1.0, 0.0} == set(expected)
    if env is Point:
        assert found.terminated is None
    else:
        assert found.terminated(achieved, desired).tolist() == [each == 0 for each in expected]


@pytest.mark.parametrize(
    ("env", "message"),
    [(NeedsInfo, r"compute_reward of P fails .*\(.*'reward'"), (Unending, r"compute_terminated of P .*later")],
)
def test_rewards_that_need_info_raise_with_her(env: type[Point], message: str) -> None:
    """Learning without hindsight is possible."""
    rows = wrap_env(SerialEnvs(env, 2, "P"), [WrapperSpec.parse("action-repeat")])
    rows.reset(0)
    assert rows.spec.goals is None
    with pytest.raises(
        UsageError, match=f"^her replays other goals, and {message}.*; let it depend only on the goals, "
    ):
        goals_of(rows.spec)


class OwnStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An unknown wrapper with a `step`, which may change rewards."""

    def step(self, action: Any) -> Any:
        return self.env.step(action)


class OwnReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes only `reset`."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=options)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("scale-reward", ("scale-reward",)),
        ("clip-reward", ("time-limit:steps=9", "clip-reward")),
        ("action-repeat", ("action-repeat:times=3",)),
        ("frame-stack", ("frame-stack:frames=2",)),
        ("ClipReward", ("gymnasium:ClipReward:max_reward=1", "action-repeat", "scale-reward")),
        ("RepeatAction", ("gymnasium:RepeatAction:num_repeats=2", "gymnasium:ClipAction")),
    ],
)
def test_wrappers_that_may_change_rewards_remove_goals(name: str, words: tuple[str, ...]) -> None:
    env: Env = SerialEnvs(Point, 2, "Point", inexact="")
    env = wrap_env(env, map(WrapperSpec.parse, words))
    assert env.spec.goals is None
    with pytest.raises(UsageError, match=f"^her replays other goals, and {name} around Point may change rewards"):
        goals_of(env.spec)


def test_wrapper_inside_a_function_removes_goals() -> None:
    assert SerialEnvs(lambda: wrappers.TimeLimit(OwnStep(Point()), 9), 1).spec.no_goals.startswith(
        "OwnStep around Point may"
    )


class Centimetres(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return {name: 100 * value for name, value in observation.items()}


def test_observation_wrapper_removes_goals() -> None:
    """The environment would get goals that are a hundred times as far apart."""
    assert SerialEnvs(lambda: Centimetres(Point()), 1).spec.no_goals.startswith("Centimetres around Point may change")


def test_wrappers_that_do_not_change_rewards_keep_goals() -> None:
    def make() -> Any:
        wrapped = OwnReset(wrappers.OrderEnforcing(wrappers.PassiveEnvChecker(Point())))
        return wrappers.RescaleAction(
            wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(wrapped, 9)), np.float32(-1), np.float32(1)
        )

    assert goals_of(SerialEnvs(make, 1, "Point").spec).reward(np.zeros((1, 2)), np.ones((1, 2))).tolist() == [-1]


def test_wrapper_is_not_blamed_for_missing_goals() -> None:
    env = SerialEnvs(lambda: gymnasium.make("CartPole-v1"), 1)
    assert ScaleReward(env, ScaleRewardConfig()).spec.no_goals == ""
    assert env.spec.goals is None
