"""PopArt: outputs of size 1 for values of any size (van Hasselt et al., 2016, arXiv:1602.07714)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import TINY, mix, moments


class PopArt(nn.Module):
    """Features [B, F] to normalized values [B, 1], W features + b; a value is scale * (W features + b) + shift.

    Scale and shift follow the moments of the targets, so W and b learn targets of mean 0 and deviation 1 (algorithm 1).

    Args:
        features: F.
        rate: step of the moments for one target; for a batch of n it is 1 - (1 - rate)^n.
        least: the smallest scale, so that errors are not divided by 0 if all targets are equal.
        net: the initial weights of W and b.
    """

    mean: Tensor
    variance: Tensor
    known: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        features: int,
        rate: float = 3e-4,
        least: float = 1e-4,
        net: Net | None = None,
    ) -> None:
        super().__init__()
        self.rate = rate
        self.least = least
        self.linear = linear(features, 1, 1.0, net)
        self.register_buffer("mean", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(1, dtype=torch.float64))
        # The share of the targets in the moments; the rest are the initial moments.
        self.register_buffer("known", torch.zeros((), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)

    @torch.no_grad()
    def update_stats(self, target: Tensor, weight: Tensor) -> Tensor:
        """Move the moments by value targets [B] with weights [B], and W and b so that no value changes (proposition 1).

        The first batch's moments replace the initial ones. Return the factor [1] by which W was multiplied.
        """
        mean, variance, size = moments(target.unsqueeze(1), weight)
        fresh = 1 - (1 - self.rate) ** size
        self.known.add_((1 - self.known) * fresh)
        mix(self.mean, self.variance, mean, variance, fresh / self.known.clamp(min=TINY))
        scale = self.scale.double()
        shift = self.shift.double()
        self.scale.copy_(self.variance.sqrt().clamp(min=self.least))
        self.shift.copy_(self.mean)
        factor = scale / self.scale
        self.linear.weight.mul_(factor)
        self.linear.bias.copy_((scale * self.linear.bias + shift - self.shift) / self.scale)
        return factor
