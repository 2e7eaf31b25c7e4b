"""Faster versions of functions that are marked `overridable`, on FastTensors: in closed form or as a loop."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import nn

from rlplug_core.accelerator import Function
from rlplug_core.acting.epsilon_greedy import of_action
from rlplug_core.batches import clipped_surrogate
from rlplug_core.fast.array import FastTensor, Operand, array_of
from rlplug_core.fast.dispatch import Result
from rlplug_core.fast.functions import concatenate, huber, pooled, stack
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.fast.parallel_dense import ParallelDense
from rlplug_core.fast.trace import program_of
from rlplug_core.learning.estimators import standardize
from rlplug_core.learning.losses import (
    Regression,
    categorical_projection,
    expectile_loss,
    loss_and_derivative,
    quantile_huber,
    regression,
)
from rlplug_core.learning.temperature import Temperature
from rlplug_core.nets.continuous import ActionCritic, action_features, critic_outputs
from rlplug_core.nets.continuous import pooled as pooled_outputs
from rlplug_core.nets.encoders import MLP, Concat, Vector
from rlplug_core.nets.q_networks import gather_actions
from rlplug_core.types import Array


def _surrogate(
    ratio: FastTensor,
    advantage: Operand,
    clip_range: float,
) -> Result:
    loops = loop_module("heads")
    value = ratio.value
    factor = array_of(advantage)
    if loops is None or not value.dtype == factor.dtype == np.float32:
        return NotImplemented
    surrogate = np.empty_like(factor)
    derivative = np.empty_like(factor)
    loops.clipped_product(value, factor, 1 - clip_range, 1 + clip_range, surrogate, derivative)
    return ratio.result(surrogate, lambda gradient, into: (gradient * derivative,))


def _standardize(
    values: FastTensor,
    weight: Operand,
    epsilon: float = 1e-8,
) -> Result:
    loops = loop_module("learning")
    value = values.value
    weights = array_of(weight)
    fits = value.dtype == weights.dtype == np.float32 and value.flags.c_contiguous
    if loops is None or not fits:
        return NotImplemented
    outputs = np.empty_like(value)
    loops.standardize(value, weights, epsilon, outputs)
    return FastTensor(outputs)


def _regression(
    value: FastTensor,
    target: Operand,
    kind: Regression,
) -> FastTensor:
    error = value - target
    return huber(error) if kind == "huber" else error.square()


def _expectile_loss(
    value: FastTensor,
    target: Operand,
    expectile: float,
) -> FastTensor:
    error: FastTensor = value - target
    factor = np.where(error.value > 0, 1 - expectile, expectile).astype(error.value.dtype)
    return error.square() * FastTensor(factor)


def _projection(
    probability: FastTensor,
    reward: Operand,
    discount: Operand,
    support: Operand,
) -> FastTensor:
    arrays = probability.value, array_of(reward), array_of(discount)
    loops = loop_module("learning") if all(array.dtype == np.float32 for array in arrays) else None
    atoms = array_of(support)
    if loops is None:
        tensors = map(torch.from_numpy, (*arrays, atoms))
        return FastTensor(categorical_projection(*tensors).numpy())
    outputs = np.zeros_like(arrays[0])
    loops.projection(np.ascontiguousarray(arrays[0]), *arrays[1:], atoms, outputs)
    return FastTensor(outputs)


def _quantile_huber(
    quantiles: FastTensor,
    shares: Operand,
    targets: Operand,
    kappa: float = 1.0,
) -> FastTensor:
    levels = shares if shares.__class__ is torch.Tensor else torch.from_numpy(array_of(shares))
    tensors = torch.from_numpy(quantiles.value), levels, torch.from_numpy(array_of(targets))
    loss, derivative = (tensor.numpy() for tensor in loss_and_derivative(*tensors, kappa))
    return quantiles.result(loss, lambda gradient, into: (gradient[:, None] * derivative,))


def _times_alpha(
    temperature: Temperature,
    log_prob: FastTensor,
    ent_coef: float,
) -> FastTensor:
    return log_prob * alpha(temperature, ent_coef)


def alpha(temperature: Temperature, ent_coef: float) -> float:
    """Return the entropy coefficient as a number."""
    return math.exp(temperature.log.item()) if temperature.autotune else ent_coef


def _temperature_loss(
    temperature: Temperature,
    log_prob: FastTensor,
    target_entropy: Operand,
) -> FastTensor:
    gap = (log_prob.detach() + target_entropy).value
    log = temperature.log
    value = -log.item() * gap
    if not (log.requires_grad and torch.is_grad_enabled()):
        return FastTensor(value)

    def backward(gradient: Array, into: Gradients) -> tuple[()]:
        into.add(log, -gradient.dot(gap))
        return ()

    return FastTensor(value, (), backward)


#: For each list of critics, the passes that compute all of them in parallel.
PARALLEL_CRITICS: WeakKeyDictionary[nn.Module, ParallelDense] = WeakKeyDictionary()


def _critic_outputs(
    members: nn.ModuleList,
    *features: FastTensor,
) -> FastTensor:
    """Compute the outputs [n, B, O] of critics that see the same features."""
    critic_input = features[0]
    if len(set(map(id, features))) > 1:
        raise NoFastPath("critics with different features")
    programs = [
        program_of(ActionCritic.from_features, member) for member in members._modules.values()
    ]
    if torch.get_num_threads() > 1:
        parallel = PARALLEL_CRITICS.get(members)
        if parallel is None or any(
            member is not program
            for member, program in zip(parallel.members, programs, strict=True)
        ):
            parallel = PARALLEL_CRITICS[members] = ParallelDense(programs)
        if parallel.is_faster(critic_input.value):
            return parallel(critic_input)
    return stack([program(critic_input) for program in programs])


def _action_features(
    vectors: Any,
    obs: FastTensor,
    action: FastTensor,
) -> FastTensor:
    """Concatenate an observation and an action if both are vectors; otherwise call the encoder `vectors`."""
    both = {"obs": obs, "action": action}
    entry = CONCATENATED.get(id(vectors))
    if entry is None or entry[0]() is not vectors:
        entry = CONCATENATED[id(vectors)] = ref(vectors), _names_of_parts(vectors)
    names = entry[1]
    obs_array = obs.value
    action_array = action.value
    if (
        not names
        or obs_array.ndim != 2
        or action_array.ndim != 2
        or obs_array.dtype != action_array.dtype
    ):
        return vectors(both)
    return concatenate([both[name] for name in names], 1)


#: For each encoder of an observation and an action, by its `id`, the names of the parts that it concatenates.
CONCATENATED: dict[int, tuple[ref[nn.Module], list[str]]] = {}


def _names_of_parts(vectors: nn.Module) -> list[str]:
    """Return the names of the parts that an encoder concatenates; [] if it does more than that."""
    inner: Any = vectors.vectors if type(vectors) is MLP and not vectors.linears else vectors
    plain = type(inner) is Concat and all(type(part) is Vector for part in inner.parts)
    return list(inner.names) if plain else []


def _at_action(values: FastTensor, action: Operand) -> FastTensor:
    return values.at(array_of(action))


#: The faster version of each overridable function.
CLOSED_FORMS: dict[Function, Function] = {
    clipped_surrogate: _surrogate,
    standardize: _standardize,
    regression: _regression,
    expectile_loss: _expectile_loss,
    categorical_projection: _projection,
    quantile_huber: _quantile_huber,
    Temperature.times_alpha: _times_alpha,
    Temperature.metric: lambda temperature, log_prob, ent_coef: FastTensor(
        np.asarray(alpha(temperature, ent_coef), np.float32)
    ),
    Temperature.loss: _temperature_loss,
    action_features: _action_features,
    critic_outputs: _critic_outputs,
    pooled_outputs: pooled,
    gather_actions: _at_action,
    of_action: _at_action,
}
