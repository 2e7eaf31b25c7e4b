"""Networks on arrays: the operations of a network's own `forward` are recorded once and replayed.

The network gets a `Recorder` instead of features. torch's functions, called on it, add an operation to its list
(`__torch_function__`). A function that cannot be recorded raises `NoFastPath`, and autograd computes the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_not
from typing import Any, NoReturn, TypeAlias
from weakref import ref

import torch
from torch import Tensor, is_grad_enabled, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from rlplug_core.accelerator import OVERRIDING, Function
from rlplug_core.fast import array
from rlplug_core.fast.activations import FUNCTIONS as ACTIVATIONS
from rlplug_core.fast.array import FUNCTIONS, FastTensor
from rlplug_core.fast.gradients import Gradients, NoFastPath, PerGradient
from rlplug_core.fast.hooks import of_modules
from rlplug_core.fast.layer_ops import (
    LayerNormOp,
    LinearOp,
    LogStdOp,
    NoisyLinearOp,
    OneHotOp,
    Op,
    ScaleOp,
)
from rlplug_core.fast.parallel_dense import ParallelDense
from rlplug_core.fast.program import Chain, DuelingOp, Step
from rlplug_core.nets.heads.gaussian import LogStd
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.nets.q_networks import dueling
from rlplug_core.types import Array

#: The largest number of one-hot features for which the fast path is faster: a step of DQN takes 0.65 of the time with
#: 16 features, and the same time with 500.
MOST_FEATURES = 64


class Recorder:
    """Replaces the features [B, F] of a network while its forward is recorded.

    Args:
        ops: the operations so far.
        shape: the shape of a row of outputs, if it is not a vector.
    """

    ndim = 2
    dtype = torch.float32
    is_cpu = True

    def __init__(self, ops: Sequence[Op] = (), shape: tuple[int, ...] | None = None) -> None:
        self.ops = tuple(ops)
        self.row_shape = shape

    def then(self, *ops: Op) -> Recorder:
        """Return a recorder with more operations."""
        if self.row_shape is not None:
            raise NoFastPath("a layer after outputs of another shape")
        return Recorder((*self.ops, *ops))

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
        if function not in RECORDED:
            raise NoFastPath(array.name_of(function))
        return RECORDED[function](*args, **(named or {}))


class NoiseRecorder:
    """Replaces the noise [size] of a network, or a part of it, while its forward is recorded."""

    ndim = 1

    def __init__(self, start: int = 0, stop: int | None = None) -> None:
        self.start = start
        self.stop = stop

    def split(self, sizes: Sequence[int], axis: int = 0) -> list[NoiseRecorder]:
        """Return parts of these sizes."""
        parts = []
        start = self.start
        for size in sizes:
            parts.append(NoiseRecorder(start, start + size))
            start += size
        return parts

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
        return Recorder.__torch_function__(function, types, args, named)


OVERRIDING.update((Recorder, NoiseRecorder))


def _parameter(tensor: object) -> nn.Parameter:
    if not isinstance(tensor, nn.Parameter):
        raise NoFastPath("a layer with a weight that is not a parameter")
    return tensor


def _linear_op(weight: Tensor, bias: Tensor | None) -> LinearOp:
    return LinearOp(*(_parameter(tensor) for tensor in (weight, bias) if tensor is not None))


def _norm_op(
    shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> LayerNormOp:
    if len(shape) != 1:
        raise NoFastPath("a LayerNorm over several dimensions")
    scale = None if weight is None else _parameter(weight)
    shift = None if bias is None else _parameter(bias)
    return LayerNormOp(scale, shift, eps)


def _linear(values: Recorder, weight: Tensor, bias: Tensor | None = None) -> Recorder:
    return values.then(_linear_op(weight, bias))


def _layer_norm(
    values: Recorder,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Recorder:
    return values.then(_norm_op(shape, weight, bias, eps))


def _one_hot(vectors: OneHot, values: Recorder) -> Recorder:
    if vectors.features > MOST_FEATURES:
        raise NoFastPath(f"OneHot of more than {MOST_FEATURES} features")
    return values.then(OneHotOp(vectors))


def _noisy(layer: NoisyLinear, values: Recorder, noise: NoiseRecorder | None = None) -> Recorder:
    part = None if noise is None else slice(noise.start, noise.stop)
    return values.then(NoisyLinearOp(layer, part))


def _dueling(value: Recorder, advantage: Recorder) -> Recorder:
    """Join two streams on the same features."""
    shared = 0
    for one, other in zip(value.ops, advantage.ops, strict=False):
        if one is not other:
            break
        shared += 1
    assert advantage.row_shape is not None
    streams = Chain(advantage.ops[shared:]), Chain(value.ops[shared:])
    op = DuelingOp(*streams, actions=advantage.row_shape[0])
    return Recorder((*value.ops[:shared], op), advantage.row_shape)


#: Options of activations that are recorded with these values only.
DEFAULTS = {"alpha": 1.0, "negative_slope": 0.01}


def _check_defaults(options: dict[str, object]) -> None:
    """Raise NoFastPath for an activation with other options than the defaults; `inplace` makes no difference here."""
    for name, value in options.items():
        if name != "inplace" and value != DEFAULTS.get(name):
            raise NoFastPath(f"an activation with {name}={value}")


def _recording(op: Op) -> Callable[..., Recorder]:
    def record(values: Recorder, **options: object) -> Recorder:
        _check_defaults(options)
        return values.then(op)

    return record


#: The recording function of each function of torch, and of each overridable one.
RECORDED: dict[Function, Callable[..., Recorder]] = {
    **{function: _recording(op) for function, op in ACTIVATIONS.items()},
    functional.linear: _linear,
    functional.layer_norm: _layer_norm,
    OneHot.forward: _one_hot,
    NoisyLinear.forward: _noisy,
    RunningNorm.forward: lambda norm, values: values.then(ScaleOp(norm)),
    LogStd.forward: lambda layer, values: values.then(LogStdOp(layer.log_std)),
    dueling: _dueling,
}

#: A backward pass: its operations, the `id`s of their parameters, and whether no two operations share a parameter.
Way: TypeAlias = tuple[list[Step], frozenset[int], bool]


class Program:
    """A recorded network.

    Args:
        module: the network; only its parameters and hooks are kept.
        recorded: the recorder that its forward returned.
    """

    def __init__(self, module: nn.Module, recorded: Recorder) -> None:
        self.chain = Chain(recorded.ops)
        self.row_shape = recorded.row_shape
        self.noisy = list(_noisy_ops(self.chain))
        self.one_hot = any(isinstance(op, OneHotOp) for op in self.chain.ops)
        inner = list(module.modules())
        #: For each parameter, the dictionary in which its module stores it, its name there, and the parameter.
        self.owners = [owner._parameters for owner in inner for _ in owner._parameters]
        self.names = [name for owner in inner for name in owner._parameters]
        self.known = list(map(dict.get, self.owners, self.names))
        self.has_hooks = of_modules(inner)
        #: The memory addresses of the parameters at the last call.
        self.places: list[int] = []
        #: Backward passes, without and with the gradient of the inputs.
        self.ways = [PerGradient(partial(self._way, inputs)) for inputs in (False, True)]
        self.parallel = ParallelDense([self])

    def __call__(self, values: FastTensor, noise: Array | None = None) -> FastTensor:
        """Compute outputs for features [B, F]; the caller has called `check`."""
        features = values.value
        for noisy in self.noisy:
            noisy.noise = noise
        if torch.get_num_threads() > 1 and self.parallel.pays(features):
            rows = (-1,) if self.row_shape is None else self.row_shape
            return self.parallel(values).reshape(len(features), *rows)
        chain = self.chain
        shape = self.row_shape
        outputs, saved = chain.forward(features)
        value = outputs if shape is None else outputs.reshape(-1, *shape)
        if not is_grad_enabled():
            return FastTensor(value)
        width = outputs.shape[1]
        inputs = values.backward_of is not None

        def backward(gradient: Array, into: Gradients) -> list[Array]:
            way, trained, apart = self.ways[inputs](into)
            fresh = apart and trained <= into.zero
            into.zero -= trained
            flat = gradient if shape is None else gradient.reshape(-1, width)
            passed = chain.along(way, flat, saved, inputs, fresh)
            return [] if passed is None else [passed]

        return FastTensor(value, (values,) if inputs else (), backward)

    def _way(self, inputs: bool, into: Gradients) -> Way:
        """Return the backward pass; `inputs` says whether it includes the gradient of the inputs."""
        parameters = self.chain.parameters
        trained = frozenset(id(parameter) for parameter in parameters if parameter in into)
        apart = len(set(map(id, parameters))) == len(parameters)
        gradients = [into.get(parameter) for parameter in parameters]
        return self.chain.steps(inputs, gradients), trained, apart

    def check(self) -> None:
        """Check that the network can be replayed, before each call: hooks may be new, and parameters replaced or moved.

        Raises:
            NoFastPath: it cannot.
        """
        if any(map(is_not, map(dict.get, self.owners, self.names), self.known)):
            raise NoFastPath("a network with parameters that were replaced")
        if self.has_hooks.checked != RemovableHandle.next_id and self.has_hooks():
            raise NoFastPath("a module with a hook")
        parameters = self.chain.parameters
        places = list(map(Tensor.data_ptr, parameters))
        if places == self.places:
            return
        if any(not each.is_cpu or each.dtype is not torch.float32 for each in parameters):
            raise NoFastPath("parameters that are not float32 on the CPU")
        self.chain.refresh_views()
        self.places = places


def _noisy_ops(chain: Chain) -> list[NoisyLinearOp]:
    ops = [op for op in chain.ops if isinstance(op, NoisyLinearOp)]
    for op in chain.ops:
        if isinstance(op, DuelingOp):
            ops += _noisy_ops(op.advantage) + _noisy_ops(op.value)
    return ops


#: The recorded networks of a module, by method and by whether it has noise; a text is the reason for
#: no program.
Programs: TypeAlias = dict[tuple[Function, bool], "Program | str"]
#: The recorded networks by `id` of their module, with the module: a lookup in a WeakKeyDictionary takes five times as
#: long. A module that is collected takes its entry along.
PROGRAMS: dict[int, tuple[ref[nn.Module], Programs]] = {}


def _add_programs(module: nn.Module) -> tuple[ref[nn.Module], Programs]:
    """Add an entry for a module without recorded networks."""
    place = id(module)
    entry: tuple[ref[nn.Module], Programs]
    entry = PROGRAMS[place] = ref(module, lambda _: PROGRAMS.pop(place, None)), {}
    return entry


def program_of(method: Function, module: nn.Module, noisy: bool = False) -> Program:
    """Return the program of a network's method; the first call records it.

    Raises:
        NoFastPath: it cannot be recorded or replayed.
    """
    known = PROGRAMS.get(id(module))
    if known is None or known[0]() is not module:
        known = _add_programs(module)
    programs = known[1]
    program = programs.get((method, noisy))
    if program is None:
        if of_modules(module.modules())():
            raise NoFastPath("a module with a hook")
        program = programs[method, noisy] = _record(method, module, noisy)
    if isinstance(program, str):
        raise NoFastPath(program)
    program.check()
    return program


def _record(method: Any, module: nn.Module, noisy: bool) -> Program | str:
    noise = (NoiseRecorder(),) if noisy else ()
    try:
        with torch.no_grad():
            recorded = method.__wrapped__(module, Recorder(), *noise)
    except NoFastPath as reason:
        return str(reason)
    except TypeError as error:  # from a function of torch without `__torch_function__`
        return str(error).splitlines()[0]
    return Program(module, recorded) if isinstance(recorded, Recorder) else "a network's outputs"


def network_call(
    method: Function, module: nn.Module, features: Any, noise: Any = None, *rest: object
) -> FastTensor:
    """Compute a network's outputs by replaying its recorded method."""
    if features.__class__ is not FastTensor or rest:
        raise NoFastPath("a network with other arguments than features and noise")
    if noise is not None and noise.ndim != 1:
        raise NoFastPath("noise that differs between rows")
    known = PROGRAMS.get(id(module))
    program: Program | str | None = None
    if known is not None and known[0]() is module:
        program = known[1].get((method, noise is not None))
    if isinstance(program, Program):
        program.check()
    else:
        program = program_of(method, module, noise is not None)
    if not program.one_hot and features.value.ndim != 2:
        raise NoFastPath("observations that are not vectors")
    return program(features, None if noise is None else noise.value)


def _apply(op: Op, values: FastTensor) -> FastTensor:
    """Compute a single operation that a loss calls outside a network."""
    if values.ndim != 2 and op.parameters:
        raise NoFastPath("a layer on features that are not vectors")
    outputs, saved = op.forward(values.value)
    if not torch.is_grad_enabled():
        return FastTensor(outputs)
    inputs = values.requires_grad
    if not inputs and not op.parameters:
        return FastTensor(outputs)

    def backward(gradient: Array, into: Gradients) -> list[Array]:
        chain = Chain([op])
        into.zero -= set(map(id, op.parameters))
        steps = chain.steps(inputs, [into.get(parameter) for parameter in op.parameters])
        passed = chain.along(steps, gradient, [saved], inputs, fresh=False)
        return [] if passed is None else [passed]

    return FastTensor(outputs, (values,) if inputs else (), backward)


def _applying(op: Op) -> Callable[..., FastTensor]:
    def apply(values: FastTensor, **options: object) -> FastTensor:
        _check_defaults(options)
        return _apply(op, values)

    return apply


FUNCTIONS[array.network_call] = network_call
FUNCTIONS.update({function: _applying(op) for function, op in ACTIVATIONS.items()})
FUNCTIONS[functional.linear] = lambda values, weight, bias=None: _apply(
    _linear_op(weight, bias), values
)
FUNCTIONS[functional.layer_norm] = lambda values, shape, weight=None, bias=None, eps=1e-5: _apply(
    _norm_op(shape, weight, bias, eps), values
)
FUNCTIONS[RunningNorm.forward] = lambda norm, values: _apply(ScaleOp(norm), values)
FUNCTIONS[OneHot.forward] = lambda vectors, values: FastTensor(vectors.on_host(values.value))
FUNCTIONS[LogStd.forward] = lambda layer, values: _apply(LogStdOp(layer.log_std), values)
