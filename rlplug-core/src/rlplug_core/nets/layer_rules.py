"""Rules: what a known layer does to an array, and what becomes of slopes on their way back through it.

A rule keeps nothing between two calls. `up` gives outputs and whatever `down` needs of this call; `down` turns the
slopes of a scalar at the outputs into those at the inputs and at the layer's own parameters. Arrays that a rule is
given stay as they are. Rows come first, [B, F]; float32 and float64 work alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.products import product
from rlplug_core.types import Array

#: Slopes at a rule's inputs, None where nobody wants them, and at each of its parameters.
Slopes: TypeAlias = tuple[Array | None, list[Array]]


class Rule(Protocol):
    """One layer in numpy, on views of its parameters' memory."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]: ...

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        ...

    def up(self, values: Array) -> tuple[Array, object]: ...
    def down(self, slopes: Array, kept: Any, inputs: bool, weights: bool) -> Slopes: ...


class Affine:
    """`nn.Linear`: y = x Wᵀ + b."""

    def __init__(self, layer: nn.Linear) -> None:
        self.parameters: list[nn.Parameter] = list(layer.parameters(recurse=False))
        self.look()

    def look(self) -> None:
        self.weight, *self.bias = (parameter.detach().numpy() for parameter in self.parameters)
        self.turned = self.weight.T

    def up(self, values: Array) -> tuple[Array, Array]:
        outputs = product(values, self.turned)
        for bias in self.bias:
            outputs += bias
        return outputs, values

    def down(self, slopes: Array, kept: Array, inputs: bool, weights: bool) -> Slopes:
        own = [product(slopes.T, kept), *(summed(slopes) for _ in self.bias)] if weights else []
        return product(slopes, self.weight) if inputs else None, own


class Normal:
    """`nn.LayerNorm` over the last dimension (Ba et al., 2016, arXiv:1607.06450)."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        self.parameters, self.eps = list(layer.parameters(recurse=False)), layer.eps
        self.look()

    def look(self) -> None:
        self.affine = [parameter.detach().numpy() for parameter in self.parameters]

    def up(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        centred = values - values.mean(1, keepdims=True)
        scale = 1 / np.sqrt(np.square(centred).mean(1, keepdims=True) + self.eps)
        scaled = outputs = np.multiply(centred, scale, out=centred)
        for number, parameter in enumerate(self.affine):
            outputs = outputs + parameter if number else outputs * parameter
        return outputs, (scaled, scale)

    def down(self, slopes: Array, kept: tuple[Array, Array], inputs: bool, weights: bool) -> Slopes:
        scaled, scale = kept
        own = [summed(slopes * scaled), summed(slopes)][: len(self.affine)] if weights else []
        if not inputs:
            return None, own
        slopes = slopes * self.affine[0] if self.affine else slopes
        along = (slopes * scaled).mean(1, keepdims=True)
        return scale * (slopes - slopes.mean(1, keepdims=True) - scaled * along), own


class Spread:
    """A state-independent log standard deviation behind means: [B, d] to [B, 2 d]."""

    def __init__(self, log_std: nn.Parameter) -> None:
        self.parameters = [log_std]
        self.look()

    def look(self) -> None:
        self.log_std = self.parameters[0].detach().numpy()

    def up(self, values: Array) -> tuple[Array, None]:
        return np.concatenate([values, np.broadcast_to(self.log_std, values.shape)], 1), None

    def down(self, slopes: Array, kept: None, inputs: bool, weights: bool) -> Slopes:
        means, deviations = np.hsplit(slopes, 2)
        return means if inputs else None, [summed(deviations)] if weights else []


class Scaled:
    """Values less a shift, times a scale, within bounds; all three are a `RunningNorm`'s, as they are at each call."""

    parameters: Sequence[nn.Parameter] = ()

    def __init__(self, norm: RunningNorm) -> None:
        self.norm = norm

    def look(self) -> None:
        """Nothing is kept."""

    def up(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        norm = self.norm
        scale = norm.scale.numpy().reshape(-1)
        scaled = (values - norm.shift.numpy().reshape(-1)) * scale
        outputs = np.minimum(np.maximum(scaled, -norm.clip), norm.clip)
        return outputs, ((outputs == scaled), scale)

    def down(self, slopes: Array, kept: tuple[Array, Array], inputs: bool, weights: bool) -> Slopes:
        inside, scale = kept
        return slopes * inside * scale if inputs else None, []


class Elementwise:
    """A function of each number, by its values and its derivative; the latter is made of inputs x and outputs y."""

    parameters: Sequence[nn.Parameter] = ()

    def __init__(self, function: Callable[[Array], Array], derivative: Callable[[Array, Array], Array]) -> None:
        self.function, self.derivative = function, derivative

    def look(self) -> None:
        """There is nothing to look at."""

    def up(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        outputs = self.function(values)
        return outputs, (values, outputs)

    def down(self, slopes: Array, kept: tuple[Array, Array], inputs: bool, weights: bool) -> Slopes:
        if not inputs:
            return None, []
        derivative = self.derivative(*kept)
        return np.multiply(slopes, derivative, out=derivative if derivative.dtype == slopes.dtype else None), []


def summed(slopes: Array) -> Array:
    """The sum [F] over rows [B, F]; as a product it takes a third of the time."""
    total: Array = _ones(len(slopes), slopes.dtype).dot(slopes)
    return total


@lru_cache(maxsize=16)
def _ones(count: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(count, dtype)
