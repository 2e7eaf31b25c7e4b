"""Faster versions of functions that are marked `kernel`: numba's loops and oneDNN's products.

Each returns NotImplemented for arguments that it does not take; then the plain function is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import Function
from rlplug_core.batches import Batch, Rollout, Samples, from_arrays
from rlplug_core.fast import array_batches, memory
from rlplug_core.fast.dispatch import Result
from rlplug_core.fast.heads import loops_for
from rlplug_core.fast.matmul import linear
from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.learning.estimators import explained_variance, gae
from rlplug_core.learning.losses import SMALLEST_KAPPA, loss_and_derivative, split_between_neighbors
from rlplug_core.learning.targets import Target
from rlplug_core.learning.update_rules import Adam, RMSProp
from rlplug_core.nets import dense
from rlplug_core.nets.heads.gaussian import Gaussian
from rlplug_core.nets.recurrent import unroll
from rlplug_core.types import Array


class HostViews:
    """Arrays on the memory of tensors, made again only for other tensors, because `Tensor.numpy` takes time."""

    def __init__(self) -> None:
        self.tensors: tuple[Tensor, ...] = ()
        self.arrays: list[Array] = []

    def of(self, *tensors: Tensor) -> list[Array]:
        """Return an array for each tensor."""
        if len(tensors) != len(self.tensors) or any(map(is_not, tensors, self.tensors)):
            self.tensors = tensors
            self.arrays = [tensor.numpy() for tensor in tensors]
        return self.arrays


#: The arrays of each update rule and target network, by its `id`.
VIEWS: dict[int, HostViews] = {}
#: The largest number of entries in `VIEWS`.
MOST_VIEWS = 64


def arrays_of(owner: object, *tensors: Tensor) -> list[Array]:
    """Return tensors as arrays, from a cache if the last call with this owner had the same tensors."""
    views = VIEWS.get(id(owner))
    if views is None:
        if len(VIEWS) >= MOST_VIEWS:
            VIEWS.clear()
        views = VIEWS[id(owner)] = HostViews()
    return views.of(*tensors)


def on_host(tensor: Tensor, lr: float | Tensor) -> bool:
    """Return whether loops can update a tensor: it is float32 on the CPU, and the learning rate is a number."""
    # `isinstance` takes longer, because Tensor has a metaclass.
    return lr.__class__ is not Tensor and tensor.is_cpu and tensor.dtype is torch.float32


def _gae(
    rollout: Rollout,
    value: Array,
    next_value: Array,
    gamma: float,
    lam: float,
) -> Result:
    fits = rollout.whole and value.dtype == rollout.reward.dtype == np.float32
    loops = loop_module("learning") if fits else None
    if loops is None:
        return NotImplemented
    advantage = np.empty(value.shape, value.dtype)
    target = np.empty(value.shape, value.dtype)
    arrays = rollout.reward, rollout.terminated, rollout.truncated, value, next_value
    loops.gae(*arrays, gamma, lam, advantage, target)  # by position: names would take 1.5 µs
    return advantage, target


def _explained_variance(
    rollout: Rollout,
    advantage: Array,
    target: Array,
) -> Result:
    fits = rollout.whole and advantage.dtype == target.dtype == np.float32
    loops = loop_module("learning") if fits else None
    if loops is None:
        return NotImplemented
    return loops.explained_variance(advantage.reshape(-1), target.reshape(-1))


def _loss_and_derivative(
    quantiles: Tensor,
    shares: Tensor,
    targets: Tensor,
    kappa: float,
) -> Result:
    fits = quantiles.is_cpu and quantiles.dtype is torch.float32
    loops = loop_module("learning") if fits else None
    if loops is None:
        return NotImplemented
    arrays = [
        tensor.contiguous().numpy()
        for tensor in (quantiles, shares.float().expand_as(quantiles), targets.float())
    ]
    loss = np.empty(len(quantiles), np.float32)
    derivative = np.empty(quantiles.shape, np.float32)
    loops.quantile_huber(*arrays, max(kappa, SMALLEST_KAPPA), loss, derivative)
    return torch.from_numpy(loss), torch.from_numpy(derivative)


def _split_between_neighbors(mass: Tensor, position: Tensor) -> Result:
    """Add masses at their indices, in an order that is fixed on a CPU: n operations for a row instead of n²."""
    if not mass.is_cpu or mass.requires_grad or position.requires_grad:
        return NotImplemented
    below = position.nan_to_num().floor().clamp(max=mass.shape[1] - 2)
    share = position - below
    atom = below.long()
    sums = torch.zeros_like(mass).scatter_add_(1, atom, mass * (1 - share))
    sums.scatter_add_(1, atom + 1, mass * share)
    return sums + (0 * mass * position).sum(1, keepdim=True)  # NaN and infinity reach the whole row


def _adam(
    rule: Adam,
    parameters: Tensor,
    gradient: Tensor,
    state: dict[str, Tensor],
    lr: float | Tensor,
) -> Result:
    loops = loop_module("learning") if rule.decays_gradient and on_host(parameters, lr) else None
    if loops is None:
        return NotImplemented
    *arrays, steps = arrays_of(rule, parameters, gradient, *state.values())
    steps += 1
    count = int(steps)
    beta1, beta2 = rule.betas
    rate = lr / (1 - beta1**count)
    scale = (1 - beta2**count) ** -0.5
    loops.adam(*arrays, rule.betas, rate, scale, rule.eps, rule.weight_decay)
    return None


def _rmsprop(
    rule: RMSProp,
    parameters: Tensor,
    gradient: Tensor,
    state: dict[str, Tensor],
    lr: float | Tensor,
) -> Result:
    loops = loop_module("learning") if on_host(parameters, lr) else None
    if loops is None:
        return NotImplemented
    arrays = arrays_of(rule, parameters, gradient, state["square"])
    loops.rmsprop(*arrays, rule.alpha, rule.eps, lr)
    return None


def _lerp(
    target: Target,
    weights: list[Tensor],
    online_weights: list[Tensor],
    tau: float,
) -> Result:
    """Use a loop, because torch's first call after many of NumPy's takes longer than its others."""
    fits = tau < 1 and len(weights) == 1 and on_host(weights[0], tau)
    loops = loop_module("learning") if fits else None
    if loops is None:
        return NotImplemented
    loops.polyak(*arrays_of(target, weights[0], online_weights[0]), tau)
    return None


def _sample(head: Gaussian, outputs: Array, noise: Array) -> Result:
    # The loop takes one draw for each row, not several [n, B, d].
    loops = loops_for(outputs, "acting") if noise.ndim == 2 else None
    if loops is None or type(head) is not Gaussian:
        return NotImplemented
    action: Array = loops.sample(outputs, noise)
    return action if action.shape[1:] == head.shape else action.reshape(-1, *head.shape)


def _host_log_prob(head: Gaussian, outputs: Array, action: Array) -> Result:
    loops = loops_for(outputs, "acting")
    if loops is None:
        return NotImplemented
    flat = action if action.ndim == 2 else action.reshape(len(outputs), head.dims)
    log_prob: Array = loops.log_prob(outputs, flat, head.constant)
    return log_prob


def _unroll(
    cell: nn.RNNCellBase,
    step: Function,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> Result:
    if not memory.fits(cell, features):
        return NotImplemented
    return memory.unroll_cell(cell, features, is_first, before, valid)


KERNELS: dict[Function, Function] = {
    from_arrays: array_batches.from_arrays,
    Samples.minibatches: array_batches.minibatches,
    Batch.split: array_batches.split,
    gae: _gae,
    explained_variance: _explained_variance,
    loss_and_derivative: _loss_and_derivative,
    split_between_neighbors: _split_between_neighbors,
    Adam.step: _adam,
    RMSProp.step: _rmsprop,
    Target.lerp: _lerp,
    Gaussian.sample: _sample,
    Gaussian.host_log_prob: _host_log_prob,
    unroll: _unroll,
    dense.linear: linear,
}
