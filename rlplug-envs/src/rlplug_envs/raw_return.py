"""Sums of what environments themselves paid since their episodes began, below wrappers that may change rewards."""

from __future__ import annotations

from typing import Any

import gymnasium

from rlplug_core.types import GymEnv, GymWrapper
from rlplug_envs.watch import NUMBERS, check_result


class RawReturn(GymWrapper):
    """Sums rewards; whoever opens an episode sets `paid_so_far` to 0, since wrappers may play before it begins."""

    def __init__(self, env: GymEnv) -> None:
        super().__init__(env)
        self.paid_so_far = 0.0

    def step(self, action: object) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        found = self.env.step(action)
        if found[1].__class__ not in NUMBERS:
            check_result(str(self.env.unwrapped), *found[1:4])
        self.paid_so_far += float(found[1])
        return found


def paid_of(env: GymEnv) -> RawReturn | None:
    """Return what sums the rewards of an environment inside its wrappers; None where nothing does."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, RawReturn):
            return env
        env = env.env
    return None


def paid(env: GymEnv) -> GymEnv:
    """Return an environment whose rewards are summed, here or further inside."""
    return env if paid_of(env) else RawReturn(env)
