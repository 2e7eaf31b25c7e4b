"""Computes rewards of other goals than the desired one, for hindsight replay."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from math import prod
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from rlplug_core.config.import_string import describe
from rlplug_core.types import Array, Goals, GymEnv, Space, Spec
from rlplug_envs.raw_return import RawReturn

#: Wrappers that do not change rewards.
KEEPS_REWARDS = (
    gymnasium.ObservationWrapper,
    gymnasium.ActionWrapper,
    wrappers.TimeLimit,
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics,
    wrappers.RecordVideo,
    wrappers.HumanRendering,
    wrappers.RenderCollection,
    RawReturn,
)


#: The parts of an observation that are goals.
GOALS = frozenset({"achieved_goal", "desired_goal"})


@runtime_checkable
class SupportsGoals(Protocol):
    """An environment that can compute rewards of other goals, as those of gymnasium-robotics can."""

    def compute_reward(
        self,
        achieved_goal: Array,
        desired_goal: Array,
        info: object,
    ) -> object: ...


@runtime_checkable
class SupportsGoalEnds(Protocol):
    """An environment that can also say whether reaching a goal ends the task."""

    def compute_terminated(
        self,
        achieved_goal: Array,
        desired_goal: Array,
        info: object,
    ) -> object: ...


class GoalFunction:
    """A function of an achieved and a desired goal, for batches [B, ...].

    Args:
        function: takes two goals, or two batches of them, in the environment's own form, and an info.
        dtype: the type of its results.
        achieved, desired: zeros of the types and shapes of the environment's own goals.
    """

    def __init__(
        self,
        function: Any,
        dtype: Any,
        achieved: Array,
        desired: Array,
    ) -> None:
        self.function = function
        self.dtype = dtype
        self.achieved = achieved
        self.desired = desired
        self.takes_batches = self._accepts_batches()

    def _accepts_batches(self) -> bool:
        # More copies than the largest dimension of a goal, so a function for one pair returns another shape.
        count = max((*self.achieved.shape, *self.desired.shape, 1)) + 1
        batches = [np.stack([goal] * count) for goal in (self.achieved, self.desired)]
        try:
            return bool(np.shape(self.function(*batches, {})) == (count,))
        except Exception:  # noqa: BLE001 - a function of one pair of goals may raise anything for several
            self.function(*[goals[0] for goals in batches], {})
            return False

    def __call__(self, achieved: Array, desired: Array) -> Array:
        achieved = _convert_goals(self.achieved, achieved)
        desired = _convert_goals(self.desired, desired)
        if self.takes_batches:
            return np.asarray(self.function(achieved, desired, {}), self.dtype)
        results = [self.function(*pair, {}) for pair in zip(achieved, desired, strict=True)]
        return np.array(results, self.dtype).reshape(len(results))


def _convert_goals(example: Array, goals: Array) -> Array:
    """Return goals [B, ...] in the type and the shape of an environment's own; agents see them as float32."""
    return goals.astype(example.dtype, copy=False).reshape(len(goals), *example.shape)


def with_goals(spec: Spec, env: GymEnv) -> Spec:
    """Return the spec of an environment with the rewards of its goals, or with why they are unknown."""
    goal_spec = _with_own_goals(spec, env)
    wrapper = _unknown_wrapper(env)
    return goal_spec.without_goals(wrapper) if wrapper else goal_spec


def _unknown_wrapper(env: GymEnv) -> str:
    """Return the name of a wrapper that may change rewards or goals; "" if all wrappers keep them."""
    while isinstance(env, gymnasium.Wrapper):
        keeps_rewards = isinstance(env, KEEPS_REWARDS) or type(env).step is gymnasium.Wrapper.step
        if not keeps_rewards or (
            isinstance(env, gymnasium.ObservationWrapper) and not _keeps_goals(env)
        ):
            return type(env).__name__
        env = env.env
    return ""


def _keeps_goals(env: gymnasium.ObservationWrapper[Any, Any, Any]) -> bool:
    """Return whether an observation wrapper leaves goals unchanged, tried with one observation."""
    # A copy, because a draw from the environment's own space would advance its generator.
    space = deepcopy(env.env.observation_space)
    if not isinstance(space, spaces.Dict) or not space.spaces.keys() >= GOALS:
        return True
    space.seed(0)
    sample = space.sample()
    try:
        shown = env.observation(deepcopy(sample))
        return all(
            np.allclose(np.ravel(shown[name]), np.ravel(sample[name]), rtol=1e-5)
            for name in sorted(GOALS)
        )
    except Exception:  # noqa: BLE001 - it may raise anything about an observation that no environment gave
        return False


def _with_own_goals(spec: Spec, env: GymEnv) -> Spec:
    """Return the spec with the rewards of the environment's own goals, or with why they are unknown."""
    inner = env.unwrapped
    space = env.observation_space
    if (
        not isinstance(inner, SupportsGoals)
        or not isinstance(space, spaces.Dict)
        or not space.spaces.keys() >= GOALS
    ):
        return spec
    zeros = [
        _zero_goal(space[name], inner.observation_space, name)
        for name in ("achieved_goal", "desired_goal")
    ]
    method = "compute_reward"
    try:
        reward = GoalFunction(inner.compute_reward, np.float32, *zeros)
        method = "compute_terminated"
        ends = (
            GoalFunction(inner.compute_terminated, np.bool_, *zeros)
            if isinstance(inner, SupportsGoalEnds)
            else None
        )
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and most runs ask for no other goals
        reason = f"{method} of {spec.id} fails with zeros and an empty info ({describe(error)})"
        return replace(spec, no_goals=f"{reason}; let it depend only on the goals")
    return replace(spec, goals=Goals(reward, ends))


def _zero_goal(shown_space: Space, env_space: Space, name: str) -> Array:
    """Return a goal of zeros as the environment has it, below wrappers that may show it in another type or shape."""
    inner = (
        env_space.spaces[name]
        if isinstance(env_space, spaces.Dict) and name in env_space.spaces
        else shown_space
    )
    goal_space = inner if prod(inner.shape or ()) == prod(shown_space.shape or ()) else shown_space
    return np.zeros(goal_space.shape or (), goal_space.dtype)
