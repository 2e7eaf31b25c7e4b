"""Some rows of a step."""

from __future__ import annotations

from typing import Any

import rlplug_core as rl


def some(tree: Any, rows: rl.Array) -> Any:
    """Rows of nested dictionaries of arrays [N, ...]."""
    return rl.tree_map(lambda leaf: leaf[rows], tree)


def step_of(step: rl.Step, rows: rl.Array) -> rl.Step:
    """The transitions of some rows of `step`, of all [N]."""
    terminated = step.terminated[rows]
    truncated = step.truncated[rows]
    return rl.Step(
        obs=some(step.obs, rows),
        action=step.action[rows],
        reward=step.reward[rows],
        next_obs=some(step.next_obs, rows),
        terminated=terminated,
        truncated=truncated,
        is_first=step.is_first[rows],
        valid=step.valid[rows],
        ended=bool((terminated | truncated).any()),
        extras=some(step.extras, rows),
        recurrent_state=some(step.recurrent_state, rows),
    )
