"""The rule of hidden layers that round factors and results of large products to bfloat16.

It does to arrays what `products.linear_in_bfloat16` and the function behind it do to tensors, up and down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlplug_core.nets import products
from rlplug_core.nets.layer_rules import Affine, Elementwise, Own
from rlplug_core.types import Array

#: What `down` needs of a layer: inputs and weights as they were multiplied, and what the slope of its function is made
#: of; of a small product None, and what `Affine` keeps.
Kept: TypeAlias = tuple[tuple[Tensor, Tensor] | None, Any]
#: Numbers between two layers, in either precision.
Numbers: TypeAlias = Array | Tensor


class HiddenInBfloat16:
    """Layers y = f(x Wᵀ + b), one after the other. Small products, and all of doubles, are those of `Affine`.

    A relu gives the same before rounding and after it, so numbers stay in bfloat16 from one such layer to the next.
    """

    def __init__(self, layers: Sequence[nn.Linear], function: Elementwise) -> None:
        self.layers = [Affine(layer, function) for layer in layers]
        self.parameters: list[nn.Parameter] = [
            one for layer in self.layers for one in layer.parameters
        ]
        self.function, self.relu = function, function.name == "relu"

    def look(self) -> None:
        for layer in self.layers:
            layer.look()

    def up(self, values: Array) -> tuple[Array, list[Kept]]:
        kept: list[Kept] = []
        passed: Numbers = values
        for layer in self.layers:
            passed, own = self._up(layer, passed)
            kept.append(own)
        return array(passed), kept

    def down(self, slopes: Array, kept: list[Kept], inputs: bool, own: Own | None) -> Array | None:
        passed: Numbers | None = slopes
        end = len(self.parameters)
        for number in reversed(range(len(self.layers))):
            begin = end - len(self.layers[number].parameters)
            part = None if own is None else Own(own.arrays[begin:end], own.fresh)
            assert passed is not None
            passed = self._down(number, passed, kept[number], inputs or number > 0, part)
            end = begin
        return None if passed is None else array(passed)

    def _up(self, layer: Affine, values: Numbers) -> tuple[Numbers, Kept]:
        if len(values) * layer.weight.size <= products.WORTH or values.dtype == np.float64:
            plain, kept = layer.up(array(values))
            return plain, (None, kept)
        factors = rounded(values), rounded(layer.weight)
        result = functional.linear(*factors, *map(rounded, layer.bias))
        if self.relu:
            outputs = result.relu_()
            return outputs, (factors, outputs)
        plain = array(result)
        return self.function.over(plain), (factors, plain)

    def _down(
        self, number: int, slopes: Numbers, kept: Kept, inputs: bool, own: Own | None
    ) -> Numbers | None:
        layer = self.layers[number]
        (factors, told) = kept
        if factors is None:
            return layer.down(array(slopes), told, inputs, own)
        if self.relu:
            ahead = torch.ops.aten.threshold_backward(rounded(slopes), told, 0)
            if own is not None and layer.bias:
                own.arrays[1][...] += array(ahead.sum(0))
        else:
            ahead = rounded(layer.ahead(array(slopes), told, own))
        values, weight = factors
        if own is not None:
            own.add(array(ahead.t().mm(values)))
        return ahead.mm(weight) if inputs else None


def rounded(values: Numbers) -> Tensor:
    """Return numbers in bfloat16."""
    return values if isinstance(values, Tensor) else torch.from_numpy(values).bfloat16()


def array(values: Numbers) -> Array:
    """Return numbers as an array; those in bfloat16 become float32."""
    return values.float().numpy() if isinstance(values, Tensor) else values
