"""A step of EnvPool between the arrays that its C++ code takes and those that it returns.

EnvPool's own `step` arranges both in Python at every step, which takes as long as everything that rlplug does in a
step: 25 to 35 of 300 us with 8 environments on two busy cores. The arrangement is fixed when a pool is made, so this
module looks it up once. A test checks that the results equal those of EnvPool's `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from rlplug_core.types import Array

#: Observations, rewards, terminations, truncations and `info` of all rows.
StepResult: TypeAlias = tuple[Any, Array, Array, Array, dict[str, Any]]
#: Numbers in `info` that do not describe an episode: copies of the results of `step`, and the number of the row.
COPIES = ("elapsed_step", "env_id", "players", "reward", "terminated")


class Arrays:
    """Steps a pool with one array of observations and one of actions.

    What `step` returns is fresh memory of EnvPool's, which belongs to the caller.
    """

    def __init__(self, pool: Any) -> None:
        names = list(pool._state_keys)
        self._send = pool._send
        self._recv = pool._recv
        self._rows = pool.all_env_ids
        self._dtype = np.dtype(pool.spec.action_array_spec[pool._action_keys[-1]].dtype)
        self._obs, self._reward, self._done, self._truncated = map(
            names.index, ("obs", "reward", "done", "trunc")
        )
        info_columns = (
            (name.removeprefix("info:"), index)
            for index, name in enumerate(names)
            if name.startswith("info:")
        )
        self._info_columns = [
            (name, index) for name, index in info_columns if name.partition(".")[0] not in COPIES
        ]

    def step(self, actions: Array) -> StepResult:
        """Step every environment with its action [N, ...]."""
        self._send([self._rows, self._rows, actions.astype(self._dtype, order="C", copy=False)])
        received = self._recv()
        done = received[self._done]
        truncated = received[self._truncated]
        info = {name: received[index] for name, index in self._info_columns}
        return (
            received[self._obs],
            received[self._reward],
            np.greater(done, truncated),
            truncated,
            info,
        )


def stepper(pool: Any) -> Callable[[Any], StepResult]:
    """Return the `step` of a pool, without copies in `info`; EnvPool's own if there are several parts."""
    if _fits(pool):
        return Arrays(pool).step

    def step(actions: Any) -> StepResult:
        *results, info = pool.step(actions)
        return *results, remove_copies(info)

    return step


def _fits(pool: Any) -> bool:
    """Return whether observations and actions are one array each, and no part of `info` is inside another."""
    states = pool._state_keys
    actions = list(pool._action_keys)
    has_nested = any("." in name for name in states if name != "info:players.env_id")
    return "obs" in states and actions == ["env_id", "players.env_id", "action"] and not has_nested


def remove_copies(info: dict[str, Any]) -> dict[str, Any]:
    """Leave copies out of `info`, which would be logged as if they were the episode's."""
    return {key: value for key, value in info.items() if key not in COPIES}
