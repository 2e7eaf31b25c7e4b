"""Forward passes on the host: numpy on views of the parameters for plain networks on the CPU, torch for the rest.

For one environment and two layers of 64 units torch takes 25 microseconds, calls of numpy's 8, and the one loop that
numba makes of them 2. The views share the parameters' memory: no copy, never stale, as long as the parameters are
changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.accelerator import Forward
from rlplug_core.fast.activations import FUNCTIONS
from rlplug_core.fast.cuda.graph_forward import GraphForward
from rlplug_core.fast.layer_ops import ElementwiseOp, LogStdOp
from rlplug_core.fast.numba_loops import acting_loops, pair
from rlplug_core.nets.continuous import DeterministicPolicy
from rlplug_core.nets.distributional import CategoricalQ, QuantileQ
from rlplug_core.nets.encoders import MLP, Normalized
from rlplug_core.nets.heads import Beside, LogStd
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.noisy_outputs import NoisyOutputs
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.popart import PopArt
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Array, Obs

#: What is done to rows [B, F].
Function: TypeAlias = Callable[[Array], Array]
#: The weight [out, in] and the bias [out] of a layer.
Layer: TypeAlias = tuple[Array, Array]
#: Up to so many rows loops are faster than numpy's products with what lies between them, whatever the layers' size.
FEW = 8


def forward(module: nn.Module, inference_backend: str) -> Forward | None:
    """Return a fast forward pass of a module, or None if torch has to compute it."""
    if inference_backend != "torch" and _plain(module) is not None:
        return NumpyForward(module)
    if inference_backend == "cudagraphs" and next(module.parameters()).is_cuda:
        return GraphForward(module)
    return None


class NumpyForward:
    """Through numpy views of a plain network's parameters, taken at the first call: optimizers move them before it."""

    backend = "numpy"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.plain: Function | None = None

    def __call__(self, obs: Obs) -> Array:
        plain = self.plain
        if plain is None:
            plain = self.plain = _plain(self.module)
            assert plain is not None
        values: Array = obs
        if values.ndim != 2:
            values = values.reshape(len(values), -1)
        if values.dtype != np.float32:
            values = values.astype(np.float32)
        return plain(values)


def _plain(module: nn.Module) -> Function | None:
    """A policy, critic or Q-network (without its noise), or None where some part has no numpy form."""
    if type(module) not in FORMS or next(module.parameters()).device.type != "cpu":
        return None
    encoder = module.encoder
    norm = None
    if isinstance(encoder, Normalized):
        encoder, norm = encoder.encoder, encoder.norm.norm
    if type(encoder) is not MLP or not isinstance(encoder.vectors, OneHot | None):
        return None
    activation = FUNCTIONS.get(encoder.activation)
    if activation is None or any(isinstance(part, nn.LayerNorm) for part in module.modules()):
        return None
    plain = FORMS[type(module)](
        module, Hidden([views(layer) for layer in encoder.linears], activation)
    )
    if plain is not None and encoder.vectors is not None:
        return _one_hot(encoder.vectors, plain)
    return plain if plain is None or not isinstance(norm, RunningNorm) else _normalize(norm, plain)


def _one_hot(vectors: OneHot, plain: Function) -> Function:
    """One-hot vectors of Discrete observations, and then `plain`."""
    return lambda values: plain(vectors.on_host(values))


def _normalize(norm: RunningNorm, plain: Function) -> Function:
    """Observations scaled as by `norm`, whose buffers it views, and then `plain`."""
    shift = norm.shift.numpy().reshape(-1)
    scale = norm.scale.numpy().reshape(-1)
    clip = norm.clip

    def normalized(values: Array) -> Array:
        values = values - shift
        values *= scale
        np.minimum(values, clip, out=values)
        np.maximum(values, -clip, out=values)
        return plain(values)

    return normalized


def _policy(module: PolicyNetwork, hidden: Hidden) -> Function | None:
    """A mask needs no numpy form: it comes in a dictionary, and those go through torch."""
    parts = (
        module.outputs.layers
        if isinstance(module.outputs, Beside | NoisyOutputs)
        else [module.outputs]
    )
    lasts = [last for part in parts if (last := _last(part)) is not None]
    if len(lasts) < len(parts):
        return None
    if len(lasts) == 1:
        return hidden.then(*lasts[0])
    each = [Hidden((), hidden.activation).then(*last) for last in lasts]

    def beside(obs: Array) -> Array:
        features = hidden.features(obs)
        return np.concatenate([outputs(features) for outputs in each], -1)

    return beside


def _last(module: nn.Module) -> tuple[Layer, Function | None] | None:
    """The layer that feeds a head and what is done at the end, or None where it is none of ours."""
    if type(module) in (nn.Linear, NoisyLinear):
        return views(module), None
    if type(module) is nn.Sequential and len(module) == 2 and type(module[1]) is LogStd:
        inner = _last(module[0])
        return inner and (inner[0], _with_log_std(module[1]))
    return None


def _deterministic(module: DeterministicPolicy, hidden: Hidden) -> Function:
    return hidden.then(views(module.outputs), np.tanh)


def _critic(module: Critic, hidden: Hidden) -> Function:
    output = module.output
    if not isinstance(output, PopArt):
        return hidden.then(views(output), lambda values: values[:, 0])
    shift = output.shift.numpy()
    scale = output.scale.numpy()
    return hidden.then(views(output.linear), lambda values: values[:, 0] * scale + shift)


def _values(module: QNetwork, hidden: Hidden) -> Function:
    return _streams(module, hidden, None)


def _categorical(module: CategoricalQ, hidden: Hidden) -> Function:
    shape = (-1, module.actions, module.atoms)
    support = module.support.numpy()

    def expected(outputs: Array) -> Array:
        logits = outputs.reshape(shape)
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        values: Array = (shares @ support) / shares.sum(-1)
        return values

    return _streams(module, hidden, expected)


def _quantile(module: QuantileQ, hidden: Hidden) -> Function:
    shape = (-1, module.actions, module.atoms)
    return _streams(module, hidden, lambda outputs: outputs.reshape(shape).mean(-1))


def _streams(module: QNetwork, hidden: Hidden, finish: Function | None) -> Function:
    """The outputs [B, A * atoms] of a Q-network, dueling or not, and what makes values of them."""
    *own, last = [views(layer) for layer in module.advantage.linears]
    if module.value is None:
        return hidden.with_more(own).then(last, finish)
    shape = (-1, module.actions, module.atoms)
    advantage = Hidden(own, hidden.activation).then(last)
    *own, last = [views(layer) for layer in module.value.linears]
    value = Hidden(own, hidden.activation).then(last)

    def dueling(obs: Array) -> Array:
        features = hidden.features(obs)
        centered = advantage(features).reshape(shape)
        centered -= centered.mean(1, keepdims=True)
        centered += value(features)[:, None]
        outputs = centered.reshape(len(obs), -1)
        return outputs if finish is None else finish(outputs)

    return dueling


def views(module: nn.Module) -> Layer:
    """Views of the weight [out, in] and the bias [out] of a linear layer, of a noisy one the means."""
    assert isinstance(module, nn.Linear | NoisyLinear)
    return module.weight.detach().numpy(), module.bias.detach().numpy()


class Hidden:
    """Hidden layers, each followed by the activation."""

    def __init__(self, layers: Iterable[Layer], activation: ElementwiseOp) -> None:
        self.layers = tuple(layers)
        self.activation = activation
        #: A bias [out] would be broadcast to the one row of a single environment, which takes longer than adding it.
        self._turned = [(weight.T, bias[None]) for weight, bias in self.layers]
        loop = pair(activation.name)
        self._over = None if loop is None else loop[0]
        self.loops = None if loop is None or not self._loop(self.layers) else acting_loops()

    @staticmethod
    def _loop(layers: tuple[Layer, ...]) -> bool:
        """Return whether there are layers, and loops take them."""
        weights = [weight for weight, _ in layers]
        return bool(weights) and all(
            one.dtype == np.float32 and one.flags.c_contiguous for one in weights
        )

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
        weight = last[0].T
        bias = last[1][None]
        loops = self.loops
        layers = self.layers
        smooth = self.activation.name == "tanh"

        def through(values: Array) -> Array:
            if loops is not None and len(values) <= FEW:
                values = loops.through(values, layers, last, smooth)
            else:
                values = self.features(values).dot(weight)
                values += bias
            return values if finish is None else finish(values)

        return through


def _with_log_std(module: nn.Module) -> Function:
    assert isinstance(module, LogStd)
    return LogStdOp(module.log_std).outputs


#: What makes the numpy form of each network from the arrays of its encoder.
FORMS: dict[type[nn.Module], Callable[[Any, Hidden], Function | None]] = {
    PolicyNetwork: _policy,
    DeterministicPolicy: _deterministic,
    Critic: _critic,
    QNetwork: _values,
    CategoricalQ: _categorical,
    QuantileQ: _quantile,
}
