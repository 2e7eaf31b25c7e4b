"""The mask of allowed actions that a batch of observations holds, for rows of one kind or of several."""

from __future__ import annotations

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.nets.actions import choices
from rlplug_core.types import Array, Obs, Space, Spec

MASK = "action_mask"


def mask_of(spec: Spec, obs: Obs) -> Array | None:
    """The mask [N, C] over all `choices` of `spec.action`; None where nothing is forbidden.

    Where agents' spaces differ, each kind has a mask of its own, and what a row is not told of another kind is none.
    """
    if not isinstance(obs, dict):
        return None
    if not spec.kinds or not isinstance(spec.action, spaces.Dict):
        return obs.get(MASK)
    if not any(isinstance(seen, dict) and MASK in seen for seen in obs.values()):
        return None
    return np.concatenate([_of_kind(space, obs[kind], spec.num_envs) for kind, space in spec.action.items()], 1)


def _of_kind(space: Space, seen: Obs, num_envs: int) -> Array:
    """The mask [N, C] of one kind, ones where it has none."""
    if isinstance(seen, dict) and MASK in seen:
        mask: Array = seen[MASK]
        return mask.reshape(num_envs, -1)
    return np.ones((num_envs, choices(space)), np.bool_)
