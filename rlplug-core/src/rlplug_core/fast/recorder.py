"""Records the operations of a network's own `forward`, so that they can be replayed on arrays.

The network gets a `Recorder` instead of features. torch's functions, called on it, add an operation to its list
(`__torch_function__`). A function that cannot be recorded raises `NoFastPath`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import unwrap
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlplug_core.accelerator import OVERRIDING, Function
from rlplug_core.fast.activations import FUNCTIONS as ACTIVATIONS
from rlplug_core.fast.dispatch import name_of
from rlplug_core.fast.gradients import NoFastPath
from rlplug_core.fast.layer_ops import (
    LayerNormOp,
    LinearOp,
    LogStdOp,
    NoisyLinearOp,
    Op,
    ScaleOp,
    VectorsOp,
)
from rlplug_core.fast.program import Chain, ConcatOp, DuelingOp
from rlplug_core.nets.heads.gaussian import LogStd
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.number_scale import Scaled
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.nets.q_networks import dueling


class Recorder:
    """Replaces the features [B, F] of a network while its forward is recorded.

    Args:
        ops: the operations so far.
        shape: the shape of a row of outputs, if it is not a vector.
    """

    ndim = 2
    dtype = torch.float32
    is_cpu = True

    def __init__(
        self,
        ops: Sequence[Op] = (),
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.ops = tuple(ops)
        self.row_shape = shape

    def then(self, op: Op) -> Recorder:
        """Return a recorder with one more operation."""
        if self.row_shape is not None:
            raise NoFastPath("a layer after outputs of another shape")
        return Recorder((*self.ops, op))

    def squeeze(self, axis: int) -> Recorder:
        if axis != -1 or self.row_shape is not None:
            raise NoFastPath("Tensor.squeeze")
        return Recorder(self.ops, ())

    def unflatten(self, axis: int, shape: Sequence[int]) -> Recorder:
        if axis != -1 or self.row_shape is not None:
            raise NoFastPath("Tensor.unflatten")
        return Recorder(self.ops, tuple(shape))

    def unsqueeze(self, axis: int) -> Recorder:
        if axis != -2 or self.row_shape is not None:
            raise NoFastPath("Tensor.unsqueeze")
        return Recorder(self.ops, (1, -1))

    def tanh(self) -> Recorder:
        return self.then(ACTIVATIONS[torch.tanh])

    def __getattr__(self, name: str) -> NoReturn:
        raise NoFastPath(f"Tensor.{name}")

    @classmethod
    def __torch_function__(
        cls,
        function: Function,
        types: object,
        args: Sequence[object] = (),
        named: dict[str, object] | None = None,
    ) -> Recorder:
        if function in JOINS:
            return JOINS[function](*args, **(named or {}))
        if function not in OPERATIONS:
            raise NoFastPath(name_of(function))
        values, op = OPERATIONS[function](*args, **(named or {}))
        return values.then(op)


class NoiseRecorder:
    """Replaces the noise [size] of a network, or a part of it, while its forward is recorded."""

    ndim = 1

    def __init__(self, start: int = 0, stop: int | None = None) -> None:
        self.start = start
        self.stop = stop

    def split(
        self,
        sizes: Sequence[int],
        axis: int = 0,
    ) -> list[NoiseRecorder]:
        """Return recorders for parts of these sizes."""
        recorders = []
        start = self.start
        for size in sizes:
            recorders.append(NoiseRecorder(start, start + size))
            start += size
        return recorders

    def __getattr__(self, name: str) -> NoReturn:
        raise NoFastPath(f"Tensor.{name}")

    __torch_function__ = Recorder.__torch_function__


OVERRIDING[Recorder] = Recorder.__torch_function__
OVERRIDING[NoiseRecorder] = NoiseRecorder.__torch_function__


def _parameter(tensor: object) -> nn.Parameter:
    if not isinstance(tensor, nn.Parameter):
        raise NoFastPath("a layer with a weight that is not a parameter")
    return tensor


#: A Recorder or a FastTensor.
Values: TypeAlias = Any
#: Values and the operation that a function applies to them.
Applied: TypeAlias = tuple[Values, Op]


def _linear(
    values: Values,
    weight: Tensor,
    bias: Tensor | None = None,
) -> Applied:
    return values, LinearOp(*map(_parameter, (weight,) if bias is None else (weight, bias)))


def _layer_norm(
    values: Values,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Applied:
    if len(shape) != 1:
        raise NoFastPath("a LayerNorm over several dimensions")
    scale = None if weight is None else _parameter(weight)
    shift = None if bias is None else _parameter(bias)
    return values, LayerNormOp(scale, shift, eps)


def _noisy(
    layer: NoisyLinear,
    values: Values,
    noise: NoiseRecorder | None = None,
) -> Applied:
    part = None if noise is None else slice(noise.start, noise.stop)
    return values, NoisyLinearOp(layer, part)


#: Options of activations that are recorded with these values only; `inplace` makes no difference here.
DEFAULTS = {"alpha": 1.0, "negative_slope": 0.01}


def _activation(op: Op) -> Callable[..., Applied]:
    def apply(values: Values, **options: object) -> Applied:
        for name, value in options.items():
            if name != "inplace" and value != DEFAULTS.get(name):
                raise NoFastPath(f"an activation with {name}={value}")
        return values, op

    return apply


#: For each function of torch that is an operation, and each overridable one: from its arguments to its operation.
OPERATIONS: dict[Function, Callable[..., Applied]] = {
    **{function: _activation(op) for function, op in ACTIVATIONS.items()},
    functional.linear: _linear,
    functional.layer_norm: _layer_norm,
    NoisyLinear.forward: _noisy,
    OneHot.forward: lambda vectors, values: (values, VectorsOp(vectors)),
    Scaled.forward: lambda vectors, values: (values, VectorsOp(vectors)),
    RunningNorm.forward: lambda norm, values: (values, ScaleOp(norm)),
    LogStd.forward: lambda layer, values: (values, LogStdOp(layer.log_std)),
}


def _split(*recorders: Recorder) -> tuple[tuple[Op, ...], list[Chain]]:
    """Return the operations that all recorders share, and those that each has after them."""
    shared = 0
    for ops in zip(*(each.ops for each in recorders), strict=False):
        if any(op is not ops[0] for op in ops):
            break
        shared += 1
    return recorders[0].ops[:shared], [Chain(each.ops[shared:]) for each in recorders]


def _dueling(value: Recorder, advantage: Recorder) -> Recorder:
    assert advantage.row_shape is not None
    shared, (of_value, of_advantage) = _split(value, advantage)
    op = DuelingOp(of_advantage, of_value, actions=advantage.row_shape[0])
    return Recorder((*shared, op), advantage.row_shape)


def _concatenate(recorders: Sequence[Recorder], dim: int = 0) -> Recorder:
    if dim != -1 or any(each.row_shape is not None for each in recorders):
        raise NoFastPath("torch.cat along another axis than the last one")
    if len(recorders) == 1:
        return recorders[0]
    shared, chains = _split(*recorders)
    return Recorder((*shared, ConcatOp(chains)))


#: Functions of several recorders.
JOINS: dict[Function, Callable[..., Recorder]] = {dueling: _dueling, torch.cat: _concatenate}


def record(
    method: Function,
    module: nn.Module,
    *noise: NoiseRecorder,
) -> Recorder:
    """Record the operations of a network's method on features.

    Raises:
        NoFastPath: something in it cannot be recorded.
    """
    try:
        with torch.no_grad():
            recorded = unwrap(method)(module, Recorder(), *noise)
    except TypeError as error:  # from a function of torch without `__torch_function__`
        raise NoFastPath(str(error).splitlines()[0]) from error
    if not isinstance(recorded, Recorder):
        raise NoFastPath("a network's outputs")
    return recorded
