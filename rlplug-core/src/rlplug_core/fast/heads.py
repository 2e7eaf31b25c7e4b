"""Heads on arrays by numba's loops: log-probabilities and entropies, with gradients in closed form.

For arguments that loops do not take, and without numba, the heads' own code runs on FastTensors.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Literal

import numpy as np

from rlplug_core.fast.array import FastTensor, Operand, array_of
from rlplug_core.fast.dispatch import FUNCTIONS, Result
from rlplug_core.fast.gradients import Gradients
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.nets.heads.categorical import Categorical
from rlplug_core.nets.heads.gaussian import Gaussian
from rlplug_core.nets.heads.tanh import SquashedGaussian
from rlplug_core.types import Array


def loops_for(
    outputs: Array,
    name: Literal["acting", "heads"] = "heads",
) -> ModuleType | None:
    """Return numba's loops if they take these outputs."""
    return loop_module(name) if outputs.dtype == np.float32 and outputs.flags.c_contiguous else None


def _categorical(
    head: Categorical,
    outputs: FastTensor,
    action: Operand,
) -> Result:
    """Compute log p[a], with gradient 1{a} - p, and the entropy H, with gradient -p (log p + H), [B] each."""
    loops = loops_for(outputs.value)
    if loops is None or type(head) is not Categorical:
        return NotImplemented
    logits = outputs.value
    numbers = array_of(action)
    log_probs = np.empty_like(logits)
    probs = np.empty_like(logits)
    log_prob = np.empty(len(logits), logits.dtype)
    entropy = np.empty(len(logits), logits.dtype)
    loops.categorical(logits, numbers, log_probs, probs, log_prob, entropy)

    def log_prob_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.empty_like(logits)
        loops.categorical_backward(gradient, probs, numbers, below)
        return (below,)

    def entropy_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.empty_like(logits)
        loops.entropy_backward(gradient, probs, log_probs, entropy, below)
        return (below,)

    return outputs.result(log_prob, log_prob_backward), outputs.result(entropy, entropy_backward)


def _gaussian(head: Gaussian, outputs: FastTensor, action: Operand) -> Result:
    """Compute log p, with gradient z / deviation and z² - 1, z = (a - mean) / deviation, and the entropy, [B] each."""
    loops = loops_for(outputs.value)
    if loops is None or type(head) is not Gaussian:
        return NotImplemented
    array = outputs.value
    dims = array.shape[1] // 2
    actions = array_of(action).reshape(len(array), dims)
    scaled = np.empty(actions.shape, array.dtype)
    inverse = np.empty(actions.shape, array.dtype)
    log_prob = np.empty(len(array), array.dtype)
    log_deviations = np.empty(len(array), array.dtype)
    loops.gaussian(array, actions, scaled, inverse, log_prob, log_deviations)

    def log_prob_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.empty_like(array)
        loops.gaussian_backward(gradient, scaled, inverse, below)
        return (below,)

    def entropy_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.zeros_like(array)
        below[:, dims:] = gradient[:, None]
        return (below,)

    log_prob -= 0.5 * dims * math.log(2 * math.pi)
    entropy = log_deviations + 0.5 * dims * math.log(2 * math.pi * math.e)
    return outputs.result(log_prob, log_prob_backward), outputs.result(entropy, entropy_backward)


def _draw(
    head: SquashedGaussian,
    outputs: FastTensor,
    noise: Operand,
) -> Result:
    """Draw actions y = tanh(x), x = mean + deviation * noise, and their log-probabilities [B].

    With respect to x, y has the derivative 1 - y², and log p has 2 y. With respect to the log standard deviation, log p
    has -1 in addition; outside its bounds the gradient is 0.
    """
    loops = loops_for(outputs.value)
    if loops is None:
        return NotImplemented
    array = outputs.value
    draws = array_of(noise)
    low, high = head.LOG_STD
    action = np.empty(draws.shape, array.dtype)
    shift = np.empty(draws.shape, array.dtype)
    log_prob = np.empty(len(draws), array.dtype)
    loops.squash(array, draws, low=low, high=high, action=action, shift=shift, log_prob=log_prob)
    log_prob -= 0.5 * draws.shape[1] * math.log(2 * math.pi)

    def action_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.empty_like(array)
        loops.squash_backward(np.ascontiguousarray(gradient), action, shift, below)
        return (below,)

    def log_prob_backward(gradient: Array, into: Gradients) -> tuple[Array]:
        below = np.empty_like(array)
        loops.squash_log_prob_backward(
            gradient, action, shift, outputs=array, low=low, high=high, below=below
        )
        return (below,)

    return outputs.result(action, action_backward), outputs.result(log_prob, log_prob_backward)


FUNCTIONS[Categorical.log_prob_and_entropy] = _categorical
FUNCTIONS[Gaussian.log_prob_and_entropy] = _gaussian
FUNCTIONS[SquashedGaussian.draw] = _draw
