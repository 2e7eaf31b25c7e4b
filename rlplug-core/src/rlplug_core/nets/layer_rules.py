"""Rules: what a known layer does to an array, and what becomes of slopes on their way back through it.

A rule keeps nothing between two calls. `up` gives outputs and whatever `down` needs of this call; `down` turns the
slopes of a scalar at the outputs into those at the inputs, and adds up those at the layer's own parameters. Other
arrays that a rule is given stay as they are. Rows come first, [B, F]; float32 and float64 work alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import nn

from rlplug_core.nets import loops
from rlplug_core.nets.node import ones
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.products import product
from rlplug_core.types import Array


class Own(NamedTuple):
    """Arrays to which the slopes of a rule's parameters are added.

    Attributes:
        arrays: one for each parameter, of its shape.
        fresh: whether all of them are zero, so that the first slopes may be written there.
    """

    arrays: Sequence[Array]
    fresh: bool

    def add(self, *slopes: Array) -> None:
        """Add slopes, as many as there are, to the first arrays."""
        for array, found in zip(self.arrays, slopes, strict=False):
            array += found


class Rule(Protocol):
    """One layer in numpy, on views of its parameters' memory."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]: ...

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        ...

    def up(self, values: Array) -> tuple[Array, object]: ...

    def down(self, slopes: Array, kept: Any, inputs: bool, own: Own | None) -> Array | None:
        """Return slopes at the inputs, if they are wanted; those at the parameters are added to `own`, if they are."""
        ...


class Affine:
    """`nn.Linear`, y = x Wᵀ + b, and the function that follows it, if any: one rule for both makes fewer arrays."""

    def __init__(self, layer: nn.Linear, then: Elementwise | None = None) -> None:
        self.parameters: list[nn.Parameter] = list(layer.parameters(recurse=False))
        self.layer = layer
        self.then = then
        self.look()

    def look(self) -> None:
        self.weight, *self.bias = (parameter.detach().numpy() for parameter in self.parameters)
        self.turned = self.weight.T
        known = self.then is not None and len(self.bias) == 1 and self.weight.dtype == np.float32
        self.loops = loops.pair(self.then.name) if self.then is not None and known else None

    def up(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        outputs = product(values, self.turned)
        if self.loops is not None:
            self.loops[0](outputs, self.bias[0])
            return outputs, (values, outputs)
        for bias in self.bias:
            outputs += bias
        return outputs if self.then is None else self.then.over(outputs), (values, outputs)

    def down(
        self, slopes: Array, kept: tuple[Array, Array], inputs: bool, own: Own | None
    ) -> Array | None:
        values, told = kept
        slopes = self.ahead(slopes, told, own)
        if own is not None:
            weight = own.arrays[0]
            if own.fresh and slopes.dtype == values.dtype == weight.dtype:
                product(slopes.T, values, weight)
            else:
                weight += product(slopes.T, values)
        return product(slopes, self.weight) if inputs else None

    def ahead(self, slopes: Array, told: Array, own: Own | None) -> Array:
        """Slopes at x Wᵀ + b of those behind the function, which are added up at b too; `told` is what `up` keeps."""
        if self.loops is not None:
            total = np.zeros(told.shape[1], told.dtype) if own is None else own.arrays[1]
            ahead = np.empty(told.shape, told.dtype)
            self.loops[1](np.ascontiguousarray(slopes), told, ahead, total)
            return ahead
        if self.then is not None:
            slopes = self.then.through(slopes, told)
        if own is not None and self.bias:
            own.arrays[1][...] += summed(slopes)
        return slopes


class Normal:
    """`nn.LayerNorm` over the last dimension (Ba et al., 2016, arXiv:1607.06450)."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        self.parameters = list(layer.parameters(recurse=False))
        self.eps = layer.eps
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

    def down(
        self, slopes: Array, kept: tuple[Array, Array], inputs: bool, own: Own | None
    ) -> Array | None:
        scaled, scale = kept
        if own is not None:
            own.add(summed(slopes * scaled), summed(slopes))
        if not inputs:
            return None
        slopes = slopes * self.affine[0] if self.affine else slopes
        along = (slopes * scaled).mean(1, keepdims=True)
        below: Array = scale * (slopes - slopes.mean(1, keepdims=True) - scaled * along)
        return below


class Spread:
    """A state-independent log standard deviation behind means: [B, d] to [B, 2 d]."""

    def __init__(self, log_std: nn.Parameter) -> None:
        self.parameters = [log_std]
        self.look()

    def look(self) -> None:
        self.log_std = self.parameters[0].detach().numpy()

    def up(self, values: Array) -> tuple[Array, None]:
        return self.outputs(values), None

    def outputs(self, values: Array) -> Array:
        """Means [B, d] with the log standard deviation beside each."""
        dims = values.shape[1]
        outputs = np.empty((len(values), 2 * dims), values.dtype)
        outputs[:, :dims], outputs[:, dims:] = values, self.log_std
        return outputs

    def down(self, slopes: Array, kept: None, inputs: bool, own: Own | None) -> Array | None:
        dims = len(self.log_std)
        if own is not None:
            own.add(summed(slopes[:, dims:]))
        return slopes[:, :dims] if inputs else None


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

    def down(
        self, slopes: Array, kept: tuple[Array, Array], inputs: bool, own: Own | None
    ) -> Array | None:
        inside, scale = kept
        return slopes * inside * scale if inputs else None


class Elementwise:
    """A function of each number.

    Args:
        function: from an array into another, or into a new one for None.
        derivative: made of outputs, or of inputs.
        of_inputs: whether it is made of inputs.
        name: that of its loops, if any (`loops.pair`).
    """

    parameters: Sequence[nn.Parameter] = ()

    def __init__(
        self,
        function: Callable[[Array, Array | None], Array],
        derivative: Callable[[Array], Array],
        of_inputs: bool = False,
        name: str = "",
    ) -> None:
        self.function = function
        self.derivative = derivative
        self.of_inputs = of_inputs
        self.name = name

    def look(self) -> None:
        """There is nothing to look at."""

    def up(self, values: Array) -> tuple[Array, Array]:
        outputs = self.function(values, None)
        return outputs, values if self.of_inputs else outputs

    def over(self, values: Array) -> Array:
        """Outputs, in the place of values that nobody else sees; `values` is then what the derivative is made of."""
        return self.function(values, None if self.of_inputs else values)

    def through(self, slopes: Array, told: Array) -> Array:
        """Slopes at the outputs to those at the inputs; `told` is what the derivative is made of."""
        derivative = self.derivative(told)
        return np.multiply(
            slopes, derivative, out=derivative if derivative.dtype == slopes.dtype else None
        )

    def down(self, slopes: Array, kept: Array, inputs: bool, own: Own | None) -> Array | None:
        return self.through(slopes, kept) if inputs else None


def summed(slopes: Array) -> Array:
    """The sum [F] over rows [B, F]; as a product it takes a third of the time."""
    total: Array = ones(len(slopes), slopes.dtype).dot(slopes)
    return total
