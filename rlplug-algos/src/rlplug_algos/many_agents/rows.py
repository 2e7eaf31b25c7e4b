"""Rows of a step."""

from __future__ import annotations

from typing import Any

import rlplug_core as rl


def take_rows(tree: Any, rows: rl.Array) -> Any:
    """Return these rows of nested dictionaries of arrays [N, ...]."""
    return rl.tree_map(lambda leaf: leaf[rows], tree)


def take_step_rows(step: rl.Step, rows: rl.Array) -> rl.Step:
    """Return the step of these rows only."""
    terminated = step.terminated[rows]
    truncated = step.truncated[rows]
    return rl.Step(
        obs=take_rows(step.obs, rows),
        action=step.action[rows],
        reward=step.reward[rows],
        next_obs=take_rows(step.next_obs, rows),
        terminated=terminated,
        truncated=truncated,
        is_first=step.is_first[rows],
        valid=step.valid[rows],
        ended=bool((terminated | truncated).any()),
        extras=take_rows(step.extras, rows),
        recurrent_state=take_rows(step.recurrent_state, rows),
    )
