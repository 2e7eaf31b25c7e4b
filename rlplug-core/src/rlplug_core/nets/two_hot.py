"""Numbers of any scale as outputs of a network: symlog and two-hot (Hafner et al., 2023, arXiv:2301.04104)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TwoHot(nn.Module):
    """Numbers as distributions over atoms, which are evenly spaced in symlog(x) = sign(x) ln(1 + |x|).

    Args:
        atoms: outputs for a number; 1 for the number itself, with squared errors.
        highest: largest symlog of a number; 10 is a number of about 22,000.
    """

    support: Tensor

    def __init__(self, atoms: int, highest: float = 10.0) -> None:
        super().__init__()
        self.highest = highest
        self.register_buffer("support", torch.linspace(-highest, highest, atoms), persistent=False)

    def forward(self, outputs: Tensor) -> Tensor:
        """Compute the predicted numbers.

        Args:
            outputs: [..., atoms] of a network.

        Returns:
            Numbers [...].
        """
        if len(self.support) == 1:
            return outputs.squeeze(-1)
        mean = outputs.softmax(-1) @ self.support
        return mean.sign() * mean.abs().expm1()

    def loss(self, outputs: Tensor, number: Tensor) -> Tensor:
        """Compute the cross-entropies to the two atoms next to each number; with one atom the squared errors.

        Args:
            outputs: [..., atoms] of a network.
            number: [...] targets.

        Returns:
            Errors [...].
        """
        if len(self.support) == 1:
            return (outputs.squeeze(-1) - number).square()
        symlog = (number.sign() * number.abs().log1p()).clamp(-self.highest, self.highest)
        distance = (symlog.unsqueeze(-1) - self.support).abs()
        two_hot = (1 - distance * (len(self.support) - 1) / (2 * self.highest)).clamp(min=0)
        return -(two_hot * outputs.log_softmax(-1)).sum(-1)
