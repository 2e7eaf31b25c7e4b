"""Fully connected layers on the host, without gradients: the parts of `fast_forward`.

For few rows numba's loops do all layers in one call, where it is installed: an observation goes through two layers of
64 units in 2 microseconds, where calls of numpy's take 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from torch import nn

from rlplug_core.nets.layer_rules import Elementwise
from rlplug_core.nets.loops import acting_loops, pair
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.types import Array

Function: TypeAlias = Callable[[Array], Array]
#: The weight [out, in] and the bias [out] of a layer.
Layer: TypeAlias = tuple[Array, Array]
#: Up to so many rows loops are faster than numpy's products with what lies between them, whatever the layers' size.
FEW = 8


def views(module: nn.Module) -> Layer:
    """Views of the weight [out, in] and the bias [out] of a linear layer, of a noisy one the means."""
    assert isinstance(module, nn.Linear | NoisyLinear)
    return module.weight.detach().numpy(), module.bias.detach().numpy()


class Hidden:
    """Hidden layers, each followed by the activation."""

    def __init__(self, layers: Iterable[Layer], activation: Elementwise) -> None:
        self.layers, self.activation = tuple(layers), activation
        #: A bias [out] would be broadcast to the one row of a single environment, which takes longer than adding it.
        self._turned = [(weight.T, bias[None]) for weight, bias in self.layers]
        loop = pair(activation.name)
        self._over = None if loop is None else loop[0]
        self.loops = None if loop is None or not self._looped(self.layers) else acting_loops()

    @staticmethod
    def _looped(layers: tuple[Layer, ...]) -> bool:
        """Return whether there are layers, and loops take them."""
        weights = [weight for weight, _ in layers]
        return bool(weights) and all(one.dtype == np.float32 and one.flags.c_contiguous for one in weights)

    def with_more(self, layers: Iterable[Layer]) -> Hidden:
        """These layers and then others, with the same activation."""
        return Hidden([*self.layers, *layers], self.activation)

    def features(self, values: Array) -> Array:
        """Observations [B, F] through all layers, [B, out]."""
        for weight, bias in self._turned:
            values = values.dot(weight)
            if self._over is not None:
                self._over(values, bias[0])
            else:
                values += bias
                self.activation.function(values, values)
        return values

    def then(self, last: Layer, finish: Function | None = None) -> Function:
        """These layers, a last one without activation, and what is done at the end."""
        weight, bias = last[0].T, last[1][None]
        loops, layers, smooth = self.loops, self.layers, self.activation.name == "tanh"

        def through(values: Array) -> Array:
            if loops is not None and len(values) <= FEW:
                values = loops.through(values, layers, last, smooth)
            else:
                values = self.features(values).dot(weight)
                values += bias
            return values if finish is None else finish(values)

        return through
