"""Sums the environments' own rewards since their episodes started, below wrappers that may change rewards."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from rlplug_core.errors import UsageError
from rlplug_core.plugins.single_wrappers import SingleWrapper, replacement_of
from rlplug_core.types import GymEnv, GymWrapper, Spec
from rlplug_envs.spaces import masked
from rlplug_envs.watch import NUMBERS

Wrap: TypeAlias = Callable[[GymEnv], GymEnv]


class RawReturn(GymWrapper):
    """Sums rewards; the caller sets `total` to 0 when an episode starts, because wrappers may step before that.

    Attributes:
        total: the sum of rewards since the start of the episode.
        is_sum: whether all rewards were numbers; if not, the rewards of the wrapper above count.
    """

    def __init__(self, env: GymEnv) -> None:
        super().__init__(env)
        self.total = 0.0
        self.is_sum = True

    def step(
        self,
        action: object,
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and add its reward."""
        result = self.env.step(action)
        reward: Any = result[1]
        if reward.__class__ in NUMBERS or (
            np.ndim(reward) == 0 and np.asarray(reward).dtype.kind in "biuf"
        ):
            self.total += float(reward)
        else:
            self.is_sum = False
        return result


def find_raw_return(env: GymEnv) -> RawReturn | None:
    """Return the `RawReturn` of an environment inside its wrappers; None if there is none."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, RawReturn):
            return env
        env = env.env
    return None


def with_raw_return(env: GymEnv) -> GymEnv:
    """Return an environment with its own rewards summed, here or further inside."""
    return env if find_raw_return(env) else RawReturn(env)


def wrap_single(wrap: Wrap, spec: Spec, limit: float) -> Wrap:
    """Return a function that puts an environment inside `wrap`.

    Args:
        wrap: puts an environment inside a wrapper.
        spec: the spec of the environments.
        limit: the time limit, in the environment's own steps; inf for none.

    Raises:
        UsageError: the wrapper would take actions that a mask forbids.
    """
    if (
        isinstance(wrap, SingleWrapper)
        and masked(spec.obs)
        and (replacement := replacement_of(wrap.load()))
    ):
        raise UsageError(
            f"{wrap.name} repeats actions, also those that the masks of {spec.id} forbid by then; "
            f"use --wrap {replacement}"
        )

    def wrap_env(env: GymEnv) -> GymEnv:
        env = env if limit == inf else TimeLimit(env, int(limit))
        # Our own wrappers at most sum rewards.
        return wrap(with_raw_return(env) if isinstance(wrap, SingleWrapper) else env)

    return wrap_env
