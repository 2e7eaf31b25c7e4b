"""The layers that feed an action head, with noise on their weights; each row may have different noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets.heads import ParallelHeads
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise, NoisyLinear
from rlplug_core.types import Array


class NoisyOutputs(nn.Module):
    """Features [B, F] to the inputs of a head [B, size], with a `NoisyLinear` in place of each plain layer.

    Args:
        plain: the layer from `heads.head`: a linear layer, one with a layer after it, or several in parallel.
        kind, sigma: as in `NoisyLinear`.
        net: options of the network, which must not set the initial weights of the last layer.

    Raises:
        UsageError: `net` sets the initial weights of the last layer.
    """

    def __init__(
        self,
        plain: nn.Module,
        kind: Noise,
        sigma: float | None,
        net: Net,
    ) -> None:
        super().__init__()
        check_no_output_gain(net)
        layers = plain.layers if isinstance(plain, ParallelHeads) else [plain]
        self.layers = nn.ModuleList(_noisy(layer, kind, sigma) for layer in layers)
        self.sizes = [_first(layer).size for layer in self.layers]

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Compute outputs under `noise` [B, size] or [size], or of the mean weights."""
        noises = [None] * len(self.sizes) if noise is None else noise.split(self.sizes, -1)
        return torch.cat(
            [
                _layer_outputs(layer, features, layer_noise)
                for layer, layer_noise in zip(self.layers, noises, strict=True)
            ],
            -1,
        )

    def draw(self, numbers: Array) -> Array:
        """Return the noise [..., size] of each of `numbers` [...], int64; equal numbers give equal noise."""
        seeds, places = np.unique(numbers, return_inverse=True)
        noises = []
        for generator in map(np.random.default_rng, seeds):
            layer_noises = [_first(layer).draw(generator) for layer in self.layers]
            noises.append(np.concatenate(layer_noises))
        return np.stack(noises)[places.reshape(numbers.shape)]


def check_no_output_gain(net: Net) -> None:
    """Raise UsageError if `net` sets the initial weights of a noisy last layer."""
    if net.output_gain is not None:
        raise UsageError(
            "noisy layers have the initial weights of their paper; leave net.output_gain at none"
        )


def _noisy(plain: nn.Module, kind: Noise, sigma: float | None) -> nn.Module:
    """Return the noisy form of a linear layer, or of a sequence that starts with one."""
    if isinstance(plain, nn.Sequential):
        first, *rest = plain
        return nn.Sequential(_noisy(first, kind, sigma), *rest)
    assert isinstance(plain, nn.Linear)  # no other layer feeds a head
    return NoisyLinear(plain.in_features, plain.out_features, kind, sigma)


def _first(layer: nn.Module) -> NoisyLinear:
    first = layer[0] if isinstance(layer, nn.Sequential) else layer
    assert isinstance(first, NoisyLinear)
    return first


def _layer_outputs(
    layer: nn.Module,
    features: Tensor,
    noise: Tensor | None,
) -> Tensor:
    outputs: Tensor = _first(layer)(features, noise)
    for after in list(layer)[1:] if isinstance(layer, nn.Sequential) else ():
        outputs = after(outputs)
    return outputs
