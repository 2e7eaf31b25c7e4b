"""Masks of legal actions; they replace the logits of illegal ones.

A mask has one entry for each choice of each Discrete and MultiDiscrete part of an action, in the order of the space.
Box and MultiBinary parts have none.
"""

from __future__ import annotations

from math import prod

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import choices
from rlplug_core.types import MASK, Array, Obs, Space, Spec

#: The logit of an illegal action; finite, so that later operations give no NaN.
ILLEGAL = -1e8


def mask_of(spec: Spec, obs: Obs) -> Array | None:
    """Return the mask [N, C] over all `choices` of `spec.action`; None without a mask.

    If the spaces of agents differ, each kind of agent has a separate mask, and a row has only that of its kind.
    """
    if not isinstance(obs, dict):
        return None
    if not spec.kinds or not isinstance(spec.action, spaces.Dict):
        return obs.get(MASK)
    if not any(isinstance(part, dict) and MASK in part for part in obs.values()):
        return None
    return np.concatenate(
        [_mask_of_kind(space, obs[kind], spec.num_envs) for kind, space in spec.action.items()], 1
    )


def _mask_of_kind(space: Space, obs: Obs, num_envs: int) -> Array:
    """Return the mask [N, C] of one kind of agent; ones if it has none."""
    if isinstance(obs, dict) and MASK in obs:
        mask: Array = obs[MASK]
        return mask.reshape(num_envs, -1)
    return np.ones((num_envs, choices(space)), np.bool_)


def masked(outputs: Tensor, obs: Obs, columns: Tensor | None = None) -> Tensor:
    """Make illegal actions impossible if the observation has an action mask.

    Rows without a legal action are unchanged: no action is taken there, but a bootstrap after a truncation uses their
    values.

    Args:
        outputs: [B, A] logits or action values.
        obs: [B, ...] observations.
        columns: the outputs that the mask's entries are for, if not all.

    Returns:
        [B, A], the same with `ILLEGAL` for illegal actions.
    """
    if not (isinstance(obs, dict) and MASK in obs):
        return outputs
    illegal = obs[MASK].flatten(1) == 0
    illegal = illegal & ~illegal.all(1, keepdim=True)
    if columns is not None:
        illegal = torch.zeros_like(outputs, dtype=torch.bool).index_copy(1, columns, illegal)
    return outputs.masked_fill(illegal, ILLEGAL)


def check_mask(spec: Spec) -> None:
    """Raise UsageError if observations have a mask that does not fit the actions."""
    if not isinstance(spec.obs, spaces.Dict) or MASK not in spec.obs.spaces:
        return
    given = prod(spec.obs[MASK].shape or ())
    wanted = choices(spec.action)
    if not wanted:
        raise UsageError(
            f"{spec.id} gives an '{MASK}', and its actions, {spec.action}, have no choices to mask; only Discrete and "
            "MultiDiscrete actions do, so leave it out"
        )
    if given != wanted:
        raise UsageError(
            f"the '{MASK}' of {spec.id} has {given} entries, and its actions, {spec.action}, have {wanted} choices; "
            "give one entry for each choice of all parts"
        )
