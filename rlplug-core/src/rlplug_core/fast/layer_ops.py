"""Layers on arrays: each computes outputs from inputs, and propagates a gradient back.

An operation keeps nothing between two calls: `forward` returns outputs and the values that `backward` needs. `backward`
takes the gradient of a scalar at the outputs, returns its gradient at the inputs, and adds its gradient at the layer's
parameters to their arrays. It changes no other arrays. Values are [B, F], of float32 or float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.fast import numba_loops
from rlplug_core.fast.constants import ones
from rlplug_core.fast.matmul import ONEDNN_MINIMUM, matmul, numpy_uses_one_thread
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.number_scale import Scaled
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.types import Array


class ParamGrads(NamedTuple):
    """Arrays that receive the gradients of an operation's parameters.

    Attributes:
        arrays: one for each parameter, of its shape.
        fresh: whether all of them are zero, so that the first gradient may be written instead of added.
    """

    arrays: Sequence[Array]
    fresh: bool

    def add(self, *gradients: Array) -> None:
        """Add gradients to the arrays, in their order; there may be fewer gradients than arrays."""
        for array, gradient in zip(self.arrays, gradients, strict=False):
            array += gradient


class Op(Protocol):
    """One layer in NumPy, on views of its parameters' memory."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]: ...

    def refresh_views(self) -> None:
        """Make new views of the parameters, after they moved in memory."""
        ...

    def forward(self, values: Array) -> tuple[Array, object]: ...

    def backward(
        self,
        gradient: Array,
        saved: Any,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        """Return the gradient at the inputs if it is wanted; add that at the parameters to `param_grads` if given."""
        ...


class LinearOp:
    """`nn.Linear`, y = x Wᵀ + b, with the function that follows it, if any: one operation makes fewer arrays."""

    def __init__(
        self,
        *parameters: nn.Parameter,
        then: ElementwiseOp | None = None,
    ) -> None:
        """Take the weight, and the bias if there is one."""
        self.parameters = list(parameters)
        self.then = then
        self.refresh_views()

    def refresh_views(self) -> None:
        self.weight, *self.bias = (parameter.detach().numpy() for parameter in self.parameters)
        self.transposed = self.weight.T
        #: Up to this number of rows NumPy's product is the fastest.
        self.numpy_rows = (
            ONEDNN_MINIMUM // max(1, self.weight.size) if numpy_uses_one_thread() else 0
        )
        self.loops: numba_loops.ActivationLoops | None = None
        if self.then is not None and len(self.bias) == 1 and self.weight.dtype == np.float32:
            self.loops = numba_loops.activation_loops(self.then.name)

    def forward(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        in_numpy = len(values) <= self.numpy_rows
        outputs = values.dot(self.transposed) if in_numpy else matmul(values, self.transposed)
        if self.loops is not None:
            self.loops[0](outputs, self.bias[0])
            return outputs, (values, outputs)
        for bias in self.bias:
            outputs += bias
        return outputs if self.then is None else self.then.in_place(outputs), (values, outputs)

    def backward(
        self,
        gradient: Array,
        saved: tuple[Array, Array],
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        values, outputs = saved
        if self.then is not None:
            gradient = self.before_activation(gradient, outputs, param_grads)
        elif param_grads is not None and self.bias:
            bias = param_grads.arrays[1]
            bias += column_sums(gradient)
        in_numpy = len(values) <= self.numpy_rows
        if param_grads is not None:
            weight = param_grads.arrays[0]
            across = gradient.T
            if not (param_grads.fresh and gradient.dtype == values.dtype == weight.dtype):
                weight += matmul(across, values)
            elif in_numpy:
                across.dot(values, weight)
            else:
                matmul(across, values, weight)
        if not needs_input_grad:
            return None
        return gradient.dot(self.weight) if in_numpy else matmul(gradient, self.weight)

    def before_activation(
        self,
        gradient: Array,
        outputs: Array,
        param_grads: ParamGrads | None,
    ) -> Array:
        """Return the gradient at x Wᵀ + b, and add it to that of b; `outputs` are from `forward`."""
        assert self.then is not None
        if self.loops is not None:
            total = (
                np.zeros(outputs.shape[1], outputs.dtype)
                if param_grads is None
                else param_grads.arrays[1]
            )
            below = np.empty(outputs.shape, outputs.dtype)
            self.loops[1](np.ascontiguousarray(gradient), outputs, below, total)
            return below
        gradient = self.then.gradient(gradient, outputs)
        if param_grads is not None and self.bias:
            param_grads.arrays[1][...] += column_sums(gradient)
        return gradient


class LayerNormOp:
    """`nn.LayerNorm` over the last dimension (Ba et al., 2016, arXiv:1607.06450)."""

    def __init__(
        self,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        eps: float,
    ) -> None:
        self.parameters = [each for each in (weight, bias) if each is not None]
        self.eps = eps
        self.refresh_views()

    def refresh_views(self) -> None:
        self.affine = [parameter.detach().numpy() for parameter in self.parameters]

    def forward(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        centered = values - values.mean(1, keepdims=True)
        scale = 1 / np.sqrt(np.square(centered).mean(1, keepdims=True) + self.eps)
        scaled = outputs = np.multiply(centered, scale, out=centered)
        for number, parameter in enumerate(self.affine):
            outputs = outputs + parameter if number else outputs * parameter
        return outputs, (scaled, scale)

    def backward(
        self,
        gradient: Array,
        saved: tuple[Array, Array],
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        scaled, scale = saved
        if param_grads is not None:
            param_grads.add(column_sums(gradient * scaled), column_sums(gradient))
        if not needs_input_grad:
            return None
        gradient = gradient * self.affine[0] if self.affine else gradient
        along = (gradient * scaled).mean(1, keepdims=True)
        below: Array = scale * (gradient - gradient.mean(1, keepdims=True) - scaled * along)
        return below


class LogStdOp:
    """A log standard deviation that does not depend on the state, after means: [B, d] to [B, 2 d]."""

    def __init__(self, log_std: nn.Parameter) -> None:
        self.parameters = [log_std]
        self.refresh_views()

    def refresh_views(self) -> None:
        self.log_std = self.parameters[0].detach().numpy()

    def forward(self, values: Array) -> tuple[Array, None]:
        return self.outputs(values), None

    def outputs(self, values: Array) -> Array:
        """Put the log standard deviation next to means [B, d]."""
        dims = values.shape[1]
        outputs = np.empty((len(values), 2 * dims), values.dtype)
        outputs[:, :dims] = values
        outputs[:, dims:] = self.log_std
        return outputs

    def backward(
        self,
        gradient: Array,
        saved: None,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        dims = len(self.log_std)
        if param_grads is not None:
            param_grads.add(column_sums(gradient[:, dims:]))
        return gradient[:, :dims] if needs_input_grad else None


class ScaleOp:
    """Values minus a shift, times a scale, within bounds; all three are those of a `RunningNorm` at each call."""

    parameters: Sequence[nn.Parameter] = ()

    def __init__(self, norm: RunningNorm) -> None:
        self.norm = norm

    def refresh_views(self) -> None:
        """Keep no views: `forward` reads the norm again in each call."""

    def forward(self, values: Array) -> tuple[Array, tuple[Array, Array]]:
        norm = self.norm
        scale = norm.scale.numpy().reshape(-1)
        scaled = (values - norm.shift.numpy().reshape(-1)) * scale
        outputs = np.minimum(np.maximum(scaled, -norm.clip), norm.clip)
        return outputs, ((outputs == scaled), scale)

    def backward(
        self,
        gradient: Array,
        saved: tuple[Array, Array],
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        inside, scale = saved
        return gradient * inside * scale if needs_input_grad else None


class VectorsOp:
    """`OneHot` or `Scaled`; observations have no gradient."""

    parameters: Sequence[nn.Parameter] = ()

    def __init__(self, vectors: OneHot | Scaled) -> None:
        self.vectors = vectors

    def refresh_views(self) -> None:
        """Keep no views, because it has no parameters."""

    def forward(self, values: Array) -> tuple[Array, None]:
        return self.vectors.on_host(values), None

    def backward(
        self,
        gradient: Array,
        saved: None,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> None:
        return None


#: The values that `NoisyLinearOp.backward` needs: inputs, the weight with noise, and the noise on weight and bias.
Noisy: TypeAlias = tuple[Array, Array, tuple[Array, Array] | None]


class NoisyLinearOp:
    """`NoisyLinear`, y = (W + Σ_W ⊙ ε_W) x + b + Σ_b ⊙ ε_b.

    Args:
        layer: the layer.
        part: its part of the noise that the network was called with; None for its mean weights.
    """

    def __init__(self, layer: NoisyLinear, part: slice | None) -> None:
        self.layer = layer
        self.part = part
        #: The noise [size] of the network's current call.
        self.noise: Array | None = None
        self.parameters: Sequence[nn.Parameter] = (
            layer.weight,
            layer.bias,
            layer.weight_sigma,
            layer.bias_sigma,
        )
        self.refresh_views()

    def refresh_views(self) -> None:
        self.weight, self.bias, self.weight_sigma, self.bias_sigma = (
            each.detach().numpy() for each in self.parameters
        )

    def forward(self, values: Array) -> tuple[Array, Noisy]:
        part = None if self.noise is None or self.part is None else self.noise[self.part]
        noise = None if part is None else self.parameter_noise(part)
        weight = self.weight
        bias = self.bias
        if noise is not None:
            weight = weight + self.weight_sigma * noise[0]
            bias = bias + self.bias_sigma * noise[1]
        outputs = matmul(values, weight.T)
        outputs += bias
        return outputs, (values, weight, noise)

    def backward(
        self,
        gradient: Array,
        saved: Noisy,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        values, weight, noise = saved
        if param_grads is not None:
            means = matmul(gradient.T, values), column_sums(gradient)
            param_grads.add(
                *means, *(mean * part for mean, part in zip(means, noise or (), strict=False))
            )
        return matmul(gradient, weight) if needs_input_grad else None

    def parameter_noise(self, noise: Array) -> tuple[Array, Array]:
        """Return the noise on the weight [outputs, inputs] and on the bias [outputs], from noise [size]."""
        layer = self.layer
        if layer.kind == "factorized":
            input_noise = noise[: layer.inputs]
            output_noise = noise[layer.inputs :]
            return output_noise[:, None] * input_noise, output_noise
        return noise[: -layer.outputs].reshape(layer.outputs, layer.inputs), noise[-layer.outputs :]


class ElementwiseOp:
    """A function of each number.

    Args:
        function: of an array; writes its results into the second argument, or into a new array if that is None.
        derivative: computes the derivative from the outputs, or from the inputs.
        uses_inputs: whether `derivative` takes the inputs.
        name: the name of its loops, "" if it has none (`numba_loops.activation_loops`).
    """

    parameters: Sequence[nn.Parameter] = ()

    def __init__(
        self,
        function: Callable[[Array, Array | None], Array],
        derivative: Callable[[Array], Array],
        uses_inputs: bool = False,
        name: str = "",
    ) -> None:
        self.function = function
        self.derivative = derivative
        self.uses_inputs = uses_inputs
        self.name = name

    def refresh_views(self) -> None:
        """Keep no views, because it has no parameters."""

    def forward(self, values: Array) -> tuple[Array, Array]:
        outputs = self.function(values, None)
        return outputs, values if self.uses_inputs else outputs

    def in_place(self, values: Array) -> Array:
        """Compute outputs; `values` then contains what `derivative` takes: the outputs, or the unchanged inputs."""
        return self.function(values, None if self.uses_inputs else values)

    def gradient(self, gradient: Array, saved: Array) -> Array:
        """Return the gradient at the inputs; the derivative is computed from `saved`."""
        derivative = self.derivative(saved)
        same = derivative.dtype == gradient.dtype
        return np.multiply(gradient, derivative, out=derivative if same else None)

    def backward(
        self,
        gradient: Array,
        saved: Array,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        return self.gradient(gradient, saved) if needs_input_grad else None


def column_sums(values: Array) -> Array:
    """Return the sum [F] over rows [B, F]; computed as a product, it takes a third of the time."""
    return ones(len(values), values.dtype).dot(values)
