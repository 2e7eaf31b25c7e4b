"""Batch renormalization without modes: a pass with weights collects moments, and the end of an update applies them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets import dense
from rlplug_core.nets.continuous import action_encoder
from rlplug_core.nets.encoders import activations, encoder
from rlplug_core.nets.heads import squashed
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.types import Obs, Spec

#: The mean and the variance of a batch at each `BatchRenorm`, in the order of the forward pass.
Moments: TypeAlias = list[tuple[Tensor, Tensor]]


class BatchRenorm(nn.Module):
    """Batch renormalization (Ioffe, 2017, arXiv:1702.03275) of features [B, F].

    Without weights it uses the running moments, as in acting and evaluation. With weights [B] it uses those of
    the batch, over the rows with a weight above 0, corrected towards the running ones by at most `LIMITS`; the first
    `warmup` updates have no correction, which is batch normalization.
    """

    #: The largest ratio of deviations (r) and the largest shift (d), as in the paper.
    LIMITS = (3.0, 5.0)
    mean: Tensor
    variance: Tensor
    updates: Tensor

    def __init__(
        self,
        features: int,
        warmup: int,
        keep: float = 0.99,
        epsilon: float = 1e-3,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.keep = keep
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        self.register_buffer("updates", torch.zeros(()))

    def forward(
        self,
        values: Tensor,
        weight: Tensor | None = None,
        moments: Moments | None = None,
    ) -> Tensor:
        """Normalize values [B, F]; append the moments of the batch to `moments`."""
        running = (self.variance + self.epsilon).sqrt()
        if weight is None:
            return (values - self.mean) / running * self.scale + self.shift
        used = (weight > 0).float()
        share = used / used.sum().clamp(min=1)
        mean = share @ values
        variance = share @ (values - mean).square()
        deviation = (variance + self.epsilon).sqrt()
        if moments is not None:
            moments.append((mean.detach(), variance.detach()))
        ratio, shift = self._correction(mean.detach(), deviation.detach(), running)
        return ((values - mean) / deviation * ratio + shift) * self.scale + self.shift

    def _correction(
        self,
        mean: Tensor,
        deviation: Tensor,
        running: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return r and d of the paper (algorithm 1)."""
        max_ratio, max_shift = self.LIMITS
        warm = self.updates >= self.warmup
        ratio = (deviation / running).clamp(1 / max_ratio, max_ratio)
        shift = ((mean - self.mean) / running).clamp(-max_shift, max_shift)
        return torch.where(warm, ratio, 1.0), torch.where(warm, shift, 0.0)

    def update_stats(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running moments towards those of a batch, in place."""
        self.mean.lerp_(mean, 1 - self.keep)
        self.variance.lerp_(variance, 1 - self.keep)
        self.updates.add_(1)


def update_moments(module: nn.Module, moments: Moments) -> None:
    """Give every `BatchRenorm` inside `module` the moments that its forward pass computed."""
    norms = [part for part in module.modules() if isinstance(part, BatchRenorm)]
    for norm, (mean, variance) in zip(norms, moments, strict=True):
        norm.update_stats(mean, variance)


class RenormMLP(nn.Module):
    """Fully connected layers; their inputs and all activations are renormalized (Bhatt et al., 2024)."""

    def __init__(self, inputs: int, net: Net, warmup: int) -> None:
        super().__init__()
        if net.layer_norm:
            raise UsageError("batch renormalization replaces net.layer_norm; leave it at false")
        widths = (inputs, *net.hidden)
        self.norms = nn.ModuleList(BatchRenorm(width, warmup) for width in widths)
        self.linears = nn.ModuleList(
            linear(width, next_width, net=net, number=number)
            for number, (width, next_width) in enumerate(pairwise(widths))
        )
        self.activations = activations(net)
        self.features = widths[-1]

    def forward(
        self,
        values: Tensor,
        weight: Tensor | None = None,
        moments: Moments | None = None,
    ) -> Tensor:
        norms: Iterator[nn.Module] = iter(self.norms)
        values = next(norms)(values, weight, moments)
        for layer, activate, norm in zip(self.linears, self.activations, norms, strict=True):
            values = dense.linear(values, layer.weight, layer.bias)  # type: ignore[arg-type]
            values = norm(activate(values), weight, moments)
        return values


class RenormCritic(nn.Module):
    """Observations and actions to values [B]."""

    def __init__(self, spec: Spec, net: Net, warmup: int) -> None:
        super().__init__()
        net.check_critic()
        self.vectors, width = action_encoder(spec, net)
        self.layers = RenormMLP(width, net, warmup)
        self.output = linear(self.layers.features, 1, 1.0, net)

    def forward(
        self,
        obs: Obs,
        action: Tensor,
        weight: Tensor | None = None,
        moments: Moments | None = None,
    ) -> Tensor:
        """Compute Q(s, a) with renormalized layers.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.
            weight: [B], 0 for ignored rows; None outside of training, to normalize by the running moments.
            moments: receives those of this batch, for `update_moments` at the end of the update.

        Returns:
            Values [B].
        """
        vectors = self.vectors({"obs": obs, "action": action})
        value: Tensor = self.output(self.layers(vectors, weight, moments))
        return value.squeeze(-1)


class RenormPolicy(PolicyNetwork):
    """Observations to the outputs [B, size] of a squashed Gaussian."""

    def __init__(self, spec: Spec, net: Net, warmup: int) -> None:
        vectors, width = encoder(spec.obs, net.part(slice(0)))
        layers = RenormMLP(width, net, warmup)
        super().__init__(spec, net, (layers, layers.features), squashed)
        self.vectors = vectors

    def forward(
        self,
        obs: Obs,
        weight: Tensor | None = None,
        moments: Moments | None = None,
    ) -> Tensor:
        """Compute the outputs with renormalized layers.

        Args:
            obs: [B, ...] observations.
            weight, moments: as in `RenormCritic.forward`.

        Returns:
            Outputs [B, size] of the squashed Gaussian.
        """
        return self.outputs(self.encoder(self.vectors(obs), weight, moments))
