"""Values of critics that leave out hidden units; their masks are in the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import rlplug_core as rl


def values_with_dropout(
    critics: rl.ActionCritics, batch: rl.Transitions, obs: rl.Obs, action: Tensor, use: int
) -> Tensor:
    """Compute Q(s, a) by all n critics; without masks in the batch it drops nothing.

    Args:
        batch: `extras["masks"]` [uses, n, B, H] has factors of all H hidden units, those of the first layer first.
        obs, action: [B, ...] observations and canonical actions.
        use: the number of the mask.

    Returns:
        Values [n, B].
    """
    masks = batch.extras.get("masks")
    if masks is None:
        values: Tensor = critics(obs, action)
        return values
    pairs = zip(critics.members, masks[use], strict=True)
    return torch.stack([_value(critic, obs, action, mask) for critic, mask in pairs])


def _value(critic: Any, obs: rl.Obs, action: Tensor, mask: Tensor) -> Tensor:
    """Compute the value [B] by layers of Linear, dropout, LayerNorm and activation (DroQ, section 3)."""
    layers = critic.layers
    widths = [linear.out_features for linear in layers.linears]
    norms = list(layers.norms) or [nn.Identity()] * len(widths)
    values = critic.vectors({"obs": obs, "action": action})
    parts = (layers.linears, norms, layers.activations, mask.split(widths, 1))
    for linear, norm, activate, kept in zip(*parts, strict=True):
        values = activate(norm(linear(values) * kept))
    q: Tensor = critic.output(values)
    return q.squeeze(-1)
