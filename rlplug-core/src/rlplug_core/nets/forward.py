"""Forward passes without gradients, for acting and for values of rollouts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from rlplug_core.accelerator import Forward, room
from rlplug_core.arrays import like_inputs, no_gradient, to_device
from rlplug_core.batches import Rollout
from rlplug_core.errors import UsageError
from rlplug_core.nets.memory_networks import (
    ActorCritic,
    RecurrentCritic,
    RecurrentPolicy,
    RecurrentPolicyAndCritic,
    recurrent_values,
)
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.types import Array, Obs


class TorchForward:
    """A forward pass in torch, without gradients: from arrays to arrays, and from tensors to tensors on their device.

    It is for networks without a faster pass in the fast room.
    """

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device

    def __call__(self, obs: Obs, *others: Array) -> Array:
        """Compute outputs; `others` are further arguments of the module, such as noise."""
        with no_gradient(obs):
            inputs = (to_device(each, self.device) for each in (obs, *others))
            outputs: Array = like_inputs(self.module(*inputs), obs)
        return outputs


def fast_forward(
    module: nn.Module,
    inference_backend: str = "auto",
) -> Forward:
    """Return the fastest forward pass of a network.

    Args:
        module: the network.
        inference_backend: `auto`, `numpy`, `torch`, or `cudagraphs`, which is `auto` with graphs on a GPU.

    Raises:
        UsageError: the backend is numpy, and the network is not a plain one on the CPU.
    """
    fast = room().forward(module, inference_backend)
    if fast is not None:
        return fast
    if inference_backend == "numpy":
        raise UsageError(_reason_against_numpy(module))
    return TorchForward(module)


def _reason_against_numpy(module: nn.Module) -> str:
    """Return why a network does not act in NumPy."""
    if isinstance(module, RecurrentQ):
        return "NumPy cannot compute a memory; leave --inference-backend at auto"
    if isinstance(module, RecurrentPolicy | RecurrentCritic):
        return (
            "NumPy cannot compute a memory; leave --inference-backend at auto, or --memory at none"
        )
    return (
        "NumPy computes only fully connected layers on the CPU, without gelu, layer norm or a factory; leave "
        "--inference-backend at auto"
    )


def fast_noisy(
    network: QNetwork | PolicyNetwork | RecurrentPolicy,
    inference_backend: str = "auto",
) -> Callable[[Obs, Array | None], Array]:
    """Return the fastest forward pass of a network, called with observations and noise (None for plain layers)."""
    if network.noisy:
        noisy = TorchForward(network)
        return lambda obs, noise: noisy(obs) if noise is None else noisy(obs, noise)
    plain = fast_forward(network, inference_backend)
    return lambda obs, noise: plain(obs)


def value_predictor(
    networks: ActorCritic,
    inference_backend: str = "auto",
) -> Callable[[Rollout], tuple[Array, Array]]:
    """Return a function that computes V of every observation of a rollout and of every step's true successor.

    Args:
        networks: a policy and a critic.
        inference_backend: as of `fast_forward`; a critic with a memory always uses torch.

    Returns:
        A function from a rollout to two arrays [T, N].
    """
    critic = fast_forward(networks.critic, inference_backend)
    if isinstance(networks, RecurrentPolicyAndCritic) and isinstance(
        networks.critic, RecurrentCritic
    ):
        return partial(recurrent_values, networks=networks)
    return partial(Rollout.values, critic=critic)
