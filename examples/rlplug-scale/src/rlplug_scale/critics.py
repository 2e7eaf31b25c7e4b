"""Critics with dropout, which read their masks as an argument."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import rlplug_core as rl


class DropoutCritic(rl.ActionCritic):
    """A critic that can leave out hidden units; without a mask it is an ordinary critic."""

    def masked(self, obs: rl.Obs, action: Tensor, mask: Tensor) -> Tensor:
        """Compute Q(s, a) by layers of Linear, dropout, LayerNorm and activation (DroQ, section 3).

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.
            mask: [B, H] factors of all H hidden units, those of the first layer first.

        Returns:
            Values [B].
        """
        layers = self.layers
        widths = [linear.out_features for linear in layers.linears]
        norms = list(layers.norms) or [nn.Identity()] * len(widths)
        values = self.vectors({"obs": obs, "action": action})
        parts = (layers.linears, norms, layers.activations, mask.split(widths, 1))
        for linear, norm, activate, kept in zip(*parts, strict=True):
            values = activate(norm(linear(values) * kept))
        q: Tensor = self.output(values)
        return q.squeeze(-1)


class DropoutCritics(rl.ActionCritics):
    """Several `DropoutCritic`s."""

    def forward(self, obs: rl.Obs, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute Q(s, a) by all n critics.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.
            mask: [n, B, H] factors of the hidden units of each critic; None: no dropout.

        Returns:
            Values [n, B].
        """
        if mask is None:
            return super().forward(obs, action)
        values = [
            critic.masked(obs, action, own)  # type: ignore[operator]  # a DropoutCritic
            for critic, own in zip(self.members, mask, strict=True)
        ]
        return torch.stack(values)
