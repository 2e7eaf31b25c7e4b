"""Forward passes on the host: numpy on views of the parameters for plain networks on the CPU, torch for the rest.

At one row numpy takes 6 microseconds where torch takes 25 (architecture notes, 4.2). The views share the parameters'
memory: no copy, never stale, as long as the parameters are changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from rlplug_core.batches import to_tensors
from rlplug_core.errors import UsageError
from rlplug_core.nets.actor_critic import DeterministicPolicy
from rlplug_core.nets.encoders import MLP
from rlplug_core.nets.heads import LogStd
from rlplug_core.nets.modules import Critic, Policy, QNetwork
from rlplug_core.types import Array, Obs


class Forward(Protocol):
    """Observations [B, ...] in, an array of outputs out; no gradient."""

    backend: str

    def __call__(self, obs: Obs) -> Array: ...


def forward(module: nn.Module, acting: str = "auto") -> Forward:
    """The fastest forward pass for `module`: `acting` is `auto`, `numpy` or `torch`.

    Raises:
        UsageError: numpy was asked for and the network is not a plain one on the CPU.
    """
    if acting != "torch" and _plain(module) is not None:
        return NumpyForward(module)
    if acting == "numpy":
        raise UsageError("acting in numpy needs fully connected layers on the CPU; leave --acting at auto")
    return TorchForward(module)


class TorchForward:
    """Through torch, without gradients, to the host."""

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device

    def __call__(self, obs: Obs) -> Array:
        with torch.inference_mode():
            outputs: Array = self.module(to_tensors(obs, self.device)).cpu().numpy()
        return outputs


class NumpyForward:
    """Through numpy views of a plain network's parameters, taken at the first call: optimisers move them before it."""

    backend = "numpy"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.plain: Plain | None = None

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
        activate = plain.activate
        for weight, bias in plain.hidden:
            values = values.dot(weight)
            values += bias
            activate(values, values)
        weight, bias = plain.last
        values = values.dot(weight)
        values += bias
        return values if plain.finish is None else plain.finish(values)


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain network as arrays: weights [in, out] and biases per layer, and what is done in between and at the end."""

    hidden: list[tuple[Array, Array]]
    activate: Callable[[Array, Array], Any]
    last: tuple[Array, Array]
    finish: Callable[[Array], Array] | None


def _plain(module: nn.Module) -> Plain | None:
    """The arrays of a policy, critic or Q-network, or None where some part has no numpy form."""
    parts: tuple[nn.Module, nn.Module]
    if type(module) is Policy or type(module) is DeterministicPolicy:
        parts = (module.encoder, module.outputs)
    elif type(module) is Critic:
        parts = (module.encoder, module.output)
    elif type(module) is QNetwork and module.value is None:
        parts = (module.encoder, module.advantage)
    else:
        return None
    encoder, output = parts
    if type(encoder) is not MLP or encoder.vectors is not None or next(module.parameters()).device.type != "cpu":
        return None
    finish: Callable[[Array], Array] | None = FINISHES.get(type(module))
    if not isinstance(output, nn.Linear):
        output, log_std = output.children()
        finish = _with_log_std(log_std)
    hidden = [_arrays(layer) for layer in encoder.linears]
    return Plain(hidden, ACTIVATIONS[encoder.activation], _arrays(output), finish)


def _arrays(module: nn.Module) -> tuple[Array, Array]:
    assert isinstance(module, nn.Linear)
    return module.weight.detach().numpy().T, module.bias.detach().numpy()


def _relu(values: Array, out: Array) -> None:
    np.maximum(values, 0, out=out)


#: The numpy form of each activation: from the first array into the second.
ACTIVATIONS: dict[Any, Callable[[Array, Array], Any]] = {torch.tanh: np.tanh, torch.relu: _relu}


def _first_column(values: Array) -> Array:
    return values[:, 0]


#: What is done to the outputs of the last layer.
FINISHES: dict[type[nn.Module], Callable[[Array], Array]] = {Critic: _first_column, DeterministicPolicy: np.tanh}


def _with_log_std(module: nn.Module) -> Callable[[Array], Array]:
    assert isinstance(module, LogStd)
    log_std = module.log_std.detach().numpy()
    return lambda mean: np.concatenate([mean, np.broadcast_to(log_std, mean.shape)], -1)
