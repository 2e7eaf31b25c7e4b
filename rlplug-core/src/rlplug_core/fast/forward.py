"""Forward passes: a recorded network in NumPy if it is a plain one on the CPU, CUDA graphs on a GPU, else torch.

For one environment and two layers of 64 units torch takes 25 microseconds, NumPy 8, and one loop by numba 2. The views
share the memory of the parameters, so they are never stale while parameters are changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.accelerator import Forward
from rlplug_core.fast.cuda.graph_forward import GraphForward
from rlplug_core.fast.dense_pass import dense_pass
from rlplug_core.fast.gradients import NoFastPath
from rlplug_core.fast.layer_ops import (
    ElementwiseOp,
    LinearOp,
    LogStdOp,
    NoisyLinearOp,
    Op,
    ScaleOp,
    VectorsOp,
)
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.fast.program import Chain, ConcatOp, DuelingOp, fuse
from rlplug_core.fast.recorder import record
from rlplug_core.nets.continuous import DeterministicPolicy
from rlplug_core.nets.distributional import CategoricalQ, QuantileQ
from rlplug_core.nets.encoders import MLP, Normalized
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.number_scale import Scaled
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.popart import PopArt
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Array, Obs

#: A function of rows [B, F].
Function: TypeAlias = Callable[[Array], Array]
#: Up to this number of rows one loop is faster than NumPy's products.
FEW = 8


def forward(module: nn.Module, inference_backend: str) -> Forward | None:
    """Return a fast forward pass of a module, or None if torch has to compute it."""
    if inference_backend != "torch" and _in_numpy(module) is not None:
        return NumpyForward(module)
    if inference_backend == "cudagraphs" and next(module.parameters()).is_cuda:
        return GraphForward(module)
    return None


class NumpyForward:
    """A network in NumPy, recorded at the first call, because optimizers move parameters before it."""

    backend = "numpy"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.function: Function | None = None

    def __call__(self, obs: Obs) -> Array:
        function = self.function
        if function is None:
            function = self.function = _in_numpy(self.module)
            assert function is not None
        values: Array = obs
        if values.ndim != 2:
            values = values.reshape(len(values), -1)
        if values.dtype != np.float32:
            values = values.astype(np.float32)
        return function(values)


def _in_numpy(module: nn.Module) -> Function | None:
    """Return a policy, critic or Q-network (without its noise) as a function of arrays, or None."""
    if type(module) not in NETWORKS or next(module.parameters()).device.type != "cpu":
        return None
    encoder = module.encoder.encoder if isinstance(module.encoder, Normalized) else module.encoder
    if type(encoder) is not MLP or not isinstance(encoder.vectors, OneHot | Scaled | None):
        return None
    method, make_finish = NETWORKS[type(module)]
    try:
        function = _chain(record(method, module).ops)
    except NoFastPath:
        return None
    finish = make_finish(module)
    return function if finish is None else _compose([function, finish])


def _compose(functions: Sequence[Function]) -> Function:
    """Return one function that applies these in turn, each to the outputs of the one before."""
    if len(functions) == 1:
        return functions[0]

    def outputs(values: Array) -> Array:
        for function in functions:
            values = function(values)
        return values

    return outputs


def _chain(ops: Sequence[Op]) -> Function:
    """Return operations as a function; successive linear layers become one. NumPy computes an activation at the end.

    Raises:
        NoFastPath: an operation is not one of `STEPS`.
    """
    plain = [LinearOp(*op.parameters[:2]) if isinstance(op, NoisyLinearOp) else op for op in ops]
    functions: list[Function] = []
    layers: list[LinearOp] = []
    for op in [*fuse(plain[:-1]), plain[-1]]:
        if isinstance(op, LinearOp):
            layers.append(op)
            continue
        if layers:
            functions.append(dense(layers))
            layers = []
        if type(op) not in STEPS:
            raise NoFastPath(type(op).__name__)
        functions.append(STEPS[type(op)](op))
    if layers:
        functions.append(dense(layers))
    return _compose(functions)


def dense(layers: Sequence[LinearOp]) -> Function:
    """Return linear layers as a function; one loop computes all of them if it has their activation."""
    *hidden, last = layers
    names = {layer.then.name if layer.then else "" for layer in hidden}
    fits = last.then is None and all(
        layer.weight.flags.c_contiguous and layer.loops for layer in hidden
    )
    loops = loop_module("acting") if fits and len(names) == 1 and last.bias else None
    hidden_layers = tuple((layer.weight, *layer.bias) for layer in hidden)
    last_layer = (last.weight, *last.bias)
    use_tanh = "tanh" in names
    one_loop = dense_pass(Chain(layers))

    def outputs(values: Array) -> Array:
        if loops is not None and len(values) <= FEW:
            return loops.mlp_outputs(values, hidden_layers, last_layer, use_tanh)
        if one_loop is not None and one_loop.fits(values):
            return one_loop.forward(values)[-1]
        for layer in layers:
            values, _ = layer.forward(values)
        return values

    return outputs


def _normalize(op: ScaleOp) -> Function:
    """Return the scaling of observations by views of the norm's buffers."""
    norm: RunningNorm = op.norm
    shift = norm.shift.numpy().reshape(-1)
    scale = norm.scale.numpy().reshape(-1)
    clip = norm.clip

    def normalized(values: Array) -> Array:
        values = values - shift
        values *= scale
        np.minimum(values, clip, out=values)
        np.maximum(values, -clip, out=values)
        return values

    return normalized


def _dueling(op: DuelingOp) -> Function:
    advantage = _chain(op.advantage.ops)
    value = _chain(op.value.ops)

    def outputs(features: Array) -> Array:
        centered = advantage(features).reshape(len(features), op.actions, -1)
        centered -= centered.mean(1, keepdims=True)
        centered += value(features)[:, None]
        return centered.reshape(len(features), -1)

    return outputs


def _concat(op: ConcatOp) -> Function:
    functions = [_chain(chain.ops) for chain in op.chains]
    return lambda features: np.concatenate([function(features) for function in functions], -1)


#: The function of each operation between linear layers.
STEPS: dict[type, Callable[[Any], Function]] = {
    ElementwiseOp: lambda op: lambda values: op.function(values, None),
    LogStdOp: lambda op: op.outputs,
    VectorsOp: lambda op: op.vectors.on_host,
    ScaleOp: _normalize,
    DuelingOp: _dueling,
    ConcatOp: _concat,
}


def _finish_critic(module: Critic) -> Function:
    output = module.output
    if not isinstance(output, PopArt):
        return lambda values: values[:, 0]
    shift = output.shift.numpy()
    scale = output.scale.numpy()
    return lambda values: values[:, 0] * scale + shift


def _finish_categorical(module: CategoricalQ) -> Function:
    support = module.support.numpy()

    def expected(outputs: Array) -> Array:
        logits = outputs.reshape(-1, module.actions, module.atoms)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return (weights @ support) / weights.sum(-1)

    return expected


def _finish_quantiles(module: QuantileQ) -> Function:
    return lambda outputs: outputs.reshape(-1, module.actions, module.atoms).mean(-1)


#: For each network the method that is recorded, and a function that makes the last step, from its outputs [B, ...] to
#: results; None if they are equal.
NETWORKS: dict[type[nn.Module], tuple[Any, Callable[[Any], Function | None]]] = {
    PolicyNetwork: (PolicyNetwork.forward, lambda module: None),
    DeterministicPolicy: (DeterministicPolicy.forward, lambda module: None),
    Critic: (Critic.normalized, _finish_critic),
    QNetwork: (QNetwork.distribution, lambda module: None),
    CategoricalQ: (QNetwork.distribution, _finish_categorical),
    QuantileQ: (QNetwork.distribution, _finish_quantiles),
}
