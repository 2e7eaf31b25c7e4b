"""Networks on arrays: the recorded operations of a network's method, replayed with gradients."""

from __future__ import annotations

from functools import partial
from operator import is_not
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

import torch
from torch import Tensor, is_grad_enabled, nn
from torch.utils.hooks import RemovableHandle

from rlplug_core.accelerator import Function
from rlplug_core.fast import dispatch
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.dense_pass import DensePass, FlatGradient, dense_pass, flat_gradient
from rlplug_core.fast.dispatch import FUNCTIONS
from rlplug_core.fast.gradients import Gradients, NoFastPath, PerGradient
from rlplug_core.fast.hooks import hooks_of_modules
from rlplug_core.fast.layer_ops import NoisyLinearOp, Op, VectorsOp
from rlplug_core.fast.parallel_dense import ParallelDense
from rlplug_core.fast.program import Chain, ConcatOp, DuelingOp, Step
from rlplug_core.fast.recorder import OPERATIONS, NoiseRecorder, Recorder, record
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.types import Array

#: The fast path takes one-hot observations of at most this number of features: a step of DQN takes 0.65 of the time of
#: torch with 16 features, and the same time with 500.
MOST_FEATURES = 64


class BackwardPass(NamedTuple):
    """A backward pass that writes into the gradients of an optimizer.

    Attributes:
        steps: its steps.
        trained: the `id`s of their parameters that are trained.
        disjoint: whether no two operations share a parameter.
        flat_gradients: the gradients as one array; None unless the network is dense, and all or none of its parameters
            are trained.
    """

    steps: list[Step]
    trained: frozenset[int]
    disjoint: bool
    flat_gradients: FlatGradient | None


class Program:
    """A recorded network.

    Args:
        module: the network; the program keeps its parameters and the dictionaries of its hooks.
        recorder: the recorder with its operations.
    """

    def __init__(self, module: nn.Module, recorder: Recorder) -> None:
        self.chain = Chain(recorder.ops)
        self.row_shape = recorder.row_shape
        self.noisy = list(_noisy_ops(self.chain))
        self.makes_vectors = any(isinstance(op, VectorsOp) for op in self.chain.ops)
        inner = list(module.modules())
        #: For each parameter, the dictionary of its module that stores it, its name there, and the recorded parameter.
        self.owners = [owner._parameters for owner in inner for _ in owner._parameters]
        self.names = [name for owner in inner for name in owner._parameters]
        self.recorded_parameters = list(map(dict.get, self.owners, self.names))
        self.has_hooks = hooks_of_modules(inner)
        #: The memory addresses of the parameters at the last check.
        self.addresses: list[int] = []
        #: Its passes as one loop, if the network is dense.
        self.dense: DensePass | None = None
        #: Backward passes, without and with the gradient of the inputs.
        self.backward_passes = [
            PerGradient(partial(self._backward_pass, needs_input_grad))
            for needs_input_grad in (False, True)
        ]
        self.parallel = ParallelDense([self])

    def __call__(
        self,
        values: FastTensor,
        noise: Array | None = None,
    ) -> FastTensor:
        """Compute outputs for features [B, F]; the caller has called `check`."""
        features = values.value
        for op in self.noisy:
            op.noise = noise
        chain = self.chain
        shape = self.row_shape
        dense = self.dense
        if torch.get_num_threads() > 1 and self.parallel.is_faster(features):
            output_shape = (-1,) if shape is None else shape
            return self.parallel(values).reshape(len(features), *output_shape)
        saved: Any
        if dense is not None and dense.fits(features):
            saved = dense.forward(features)
            outputs = saved[-1]
        else:
            dense = None
            outputs, saved = chain.forward(features)
        value = outputs if shape is None else outputs.reshape(-1, *shape)
        if not is_grad_enabled():
            return FastTensor(value)
        width = outputs.shape[1]
        needs_input_grad = values.backward_of is not None

        def backward(gradient: Array, into: Gradients) -> list[Array]:
            steps, trained, disjoint, flat_gradients = self.backward_passes[needs_input_grad](into)
            fresh = disjoint and trained <= into.zero
            into.zero -= trained
            flat = gradient if shape is None else gradient.reshape(-1, width)
            if dense is not None and flat_gradients is not None and fresh:
                below = dense.backward(flat, saved, needs_input_grad, flat_gradients)
            else:
                by_op: list[Any] = saved if dense is None else dense.by_layer(saved)
                below = chain.propagate(steps, flat, by_op, needs_input_grad, fresh)
            return [] if below is None else [below]

        return FastTensor(value, (values,) if needs_input_grad else (), backward)

    def _backward_pass(
        self,
        needs_input_grad: bool,
        into: Gradients,
    ) -> BackwardPass:
        """Return the backward pass; `needs_input_grad` says whether it includes the gradient of the inputs."""
        parameters = self.chain.parameters
        trained = frozenset(id(parameter) for parameter in parameters if parameter in into)
        disjoint = len(set(map(id, parameters))) == len(parameters)
        gradients = [into.get(parameter) for parameter in parameters]
        all_or_none = not trained or len(trained) == len(parameters)
        flat_gradients = (
            flat_gradient([parameters], into) if all_or_none and self.dense is not None else None
        )
        if flat_gradients is not None:
            flat_gradients = FlatGradient(flat_gradients.array, flat_gradients.places[0])
        return BackwardPass(
            self.chain.steps(needs_input_grad, gradients), trained, disjoint, flat_gradients
        )

    def check(self) -> None:
        """Check before each call that the network can be replayed: hooks may be new, and parameters replaced or moved.

        Raises:
            NoFastPath: it cannot.
        """
        if any(map(is_not, map(dict.get, self.owners, self.names), self.recorded_parameters)):
            raise NoFastPath("a network with parameters that were replaced")
        if self.has_hooks.checked != RemovableHandle.next_id and self.has_hooks():
            raise NoFastPath("a module with a hook")
        parameters = self.chain.parameters
        addresses = list(map(Tensor.data_ptr, parameters))
        if addresses == self.addresses:
            return
        if any(not each.is_cpu or each.dtype is not torch.float32 for each in parameters):
            raise NoFastPath("parameters that are not float32 on the CPU")
        self.chain.refresh_views()
        self.dense = dense_pass(self.chain)
        self.addresses = addresses


def _noisy_ops(chain: Chain) -> list[NoisyLinearOp]:
    ops = [op for op in chain.ops if isinstance(op, NoisyLinearOp)]
    for op in chain.ops:
        if isinstance(op, DuelingOp):
            ops += _noisy_ops(op.advantage) + _noisy_ops(op.value)
    return ops


#: The programs of a module, by its method and by whether it gets noise; a string is the reason against a program.
Programs: TypeAlias = dict[tuple[Function, bool], "Program | str"]
#: A reference to each module and its programs, by `id` of the module: a lookup in a WeakKeyDictionary takes five times
#: as long. If a module is garbage collected, its entry is removed.
PROGRAMS: dict[int, tuple[ref[nn.Module], Programs]] = {}


def _add_programs(module: nn.Module) -> tuple[ref[nn.Module], Programs]:
    """Add an entry without programs for a module."""
    key = id(module)
    entry: tuple[ref[nn.Module], Programs]
    entry = PROGRAMS[key] = ref(module, lambda _: PROGRAMS.pop(key, None)), {}
    return entry


def program_of(
    method: Function,
    module: nn.Module,
    noisy: bool = False,
) -> Program:
    """Return the program of a network's method; the first call records it.

    Raises:
        NoFastPath: it cannot be recorded or replayed.
    """
    entry = PROGRAMS.get(id(module))
    if entry is None or entry[0]() is not module:
        entry = _add_programs(module)
    programs = entry[1]
    program = programs.get((method, noisy))
    if program is None:
        if hooks_of_modules(module.modules())():
            raise NoFastPath("a module with a hook")
        program = programs[method, noisy] = _record(method, module, noisy)
    if isinstance(program, str):
        raise NoFastPath(program)
    program.check()
    return program


def _record(method: Function, module: nn.Module, noisy: bool) -> Program | str:
    """Record a network for losses; return the reason as a string if that is not possible."""
    try:
        recorder = record(method, module, *([NoiseRecorder()] if noisy else []))
    except NoFastPath as reason:
        return str(reason)
    for op in recorder.ops:
        if isinstance(op, ConcatOp):
            return "torch.cat"
        if not isinstance(op, VectorsOp) or not isinstance(op.vectors, OneHot):
            continue
        if op.vectors.features > MOST_FEATURES:
            return f"OneHot of more than {MOST_FEATURES} features"
    return Program(module, recorder)


def network_call(
    method: Function,
    module: nn.Module,
    features: Any,
    noise: Any = None,
    *rest: object,
) -> FastTensor:
    """Compute a network's outputs by replaying its recorded method."""
    if features.__class__ is not FastTensor or rest:
        raise NoFastPath("a network with other arguments than features and noise")
    if noise is not None and noise.ndim != 1:
        raise NoFastPath("noise that differs between rows")
    entry = PROGRAMS.get(id(module))
    program: Program | str | None = None
    if entry is not None and entry[0]() is module:
        program = entry[1].get((method, noise is not None))
    if isinstance(program, Program):
        program.check()
    else:
        program = program_of(method, module, noise is not None)
    if not program.makes_vectors and features.value.ndim != 2:
        raise NoFastPath("observations that are not vectors")
    return program(features, None if noise is None else noise.value)


def _apply(values: FastTensor, op: Op) -> FastTensor:
    """Compute a single operation that a loss calls outside a network."""
    if values.ndim != 2 and op.parameters:
        raise NoFastPath("a layer on features that are not vectors")
    outputs, saved = op.forward(values.value)
    if not torch.is_grad_enabled():
        return FastTensor(outputs)
    needs_input_grad = values.requires_grad
    if not needs_input_grad and not op.parameters:
        return FastTensor(outputs)

    def backward(gradient: Array, into: Gradients) -> list[Array]:
        chain = Chain([op])
        into.zero -= set(map(id, op.parameters))
        steps = chain.steps(needs_input_grad, [into.get(parameter) for parameter in op.parameters])
        below = chain.propagate(steps, gradient, [saved], needs_input_grad, fresh=False)
        return [] if below is None else [below]

    return FastTensor(outputs, (values,) if needs_input_grad else (), backward)


def _apply_operation(function: Function) -> Function:
    operation = OPERATIONS[function]
    return lambda *args, **named: _apply(*operation(*args, **named))


FUNCTIONS[dispatch.network_call] = network_call
FUNCTIONS.update(
    {each: _apply_operation(each) for each in OPERATIONS if each is not NoisyLinear.forward}
)
