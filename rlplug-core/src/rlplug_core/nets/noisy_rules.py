"""The rule of linear layers with noise on their weights, up and down, as `layer_rules` has those of plain ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rlplug_core.nets.layer_rules import Own, summed
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.products import product
from rlplug_core.types import Array

#: What `down` needs of a call: inputs, the weight under noise, and the noise on weight and bias, which may be none.
Kept = tuple[Array, Array, tuple[Array, Array] | None]


class NoisyAffine:
    """`NoisyLinear`, y = (W + Σ_W ⊙ ε_W) x + b + Σ_b ⊙ ε_b, under the noise that its layer holds when it is called."""

    def __init__(self, layer: NoisyLinear) -> None:
        self.layer = layer
        self.parameters: Sequence[nn.Parameter] = (
            layer.weight,
            layer.bias,
            layer.weight_sigma,
            layer.bias_sigma,
        )
        self.look()

    def look(self) -> None:
        self.weight, self.bias, self.weight_sigma, self.bias_sigma = (
            one.detach().numpy() for one in self.parameters
        )

    def up(self, values: Array) -> tuple[Array, Kept]:
        held = self.layer.held
        noise = None if held is None else self.spread(held)
        weight = self.weight
        bias = self.bias
        if noise is not None:
            weight = weight + self.weight_sigma * noise[0]
            bias = bias + self.bias_sigma * noise[1]
        outputs = product(values, weight.T)
        outputs += bias
        return outputs, (values, weight, noise)

    def down(self, slopes: Array, kept: Kept, inputs: bool, own: Own | None) -> Array | None:
        values, weight, noise = kept
        if own is not None:
            means = product(slopes.T, values), summed(slopes)
            own.add(*means, *(mean * part for mean, part in zip(means, noise or (), strict=False)))
        return product(slopes, weight) if inputs else None

    def spread(self, noise: Array) -> tuple[Array, Array]:
        """Noise [size] as the layer draws it, as that on the weight [outputs, inputs] and on the bias [outputs]."""
        layer = self.layer
        if layer.kind == "factorized":
            into = noise[: layer.inputs]
            out = noise[layer.inputs :]
            return out[:, None] * into, out
        return noise[: -layer.outputs].reshape(layer.outputs, layer.inputs), noise[-layer.outputs :]
