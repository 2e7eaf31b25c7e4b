"""Target networks: copies that no gradient reaches, and how they move."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from rlplug_core.accelerator import kernel
from rlplug_core.learning.optimizer import flat_view, flatten
from rlplug_core.nets.normalize import ObservationNorm

M = TypeVar("M", bound=nn.Module)


def target_network(network: M) -> M:
    """Return a copy that no gradient reaches, flat in memory; it changes only when the learner changes it.

    Moments of observations are shared with the network.
    """
    shared = {
        id(module): module for module in network.modules() if isinstance(module, ObservationNorm)
    }
    target = copy.deepcopy(network, dict(shared))
    parameters = list(target.parameters())
    if parameters:
        flatten(parameters)
    for parameter in parameters:
        parameter.grad = None
        parameter.requires_grad_(False)
    return target


class Target:
    """Moves a target network in place towards the network that it follows."""

    def __init__(self, online: nn.Module, network: nn.Module) -> None:
        self.online = online
        self.network = network
        #: Flat views of the parameters of both networks. The first move makes them, because parameters may change their
        #: memory before it, but not after.
        self.views: tuple[list[Tensor], list[Tensor]] | None = None

    def move(self, tau: float = 1.0) -> None:
        """Move by the share `tau` of the way (Polyak averaging); 1 copies the weights."""
        if self.views is None:
            self.views = self._flat_views()
        self.lerp(*self.views, tau)

    @kernel
    def lerp(
        self,
        own: list[Tensor],
        followed: list[Tensor],
        tau: float,
    ) -> None:
        """Move weights in place towards others.

        Args:
            own: weights [...] of the target network.
            followed: weights of the same shapes, of the network that it follows.
            tau: the share of the way.
        """
        with torch.no_grad():
            torch._foreach_lerp_(own, followed, tau)

    def _flat_views(self) -> tuple[list[Tensor], list[Tensor]]:
        weights = [each.detach() for each in self.network.parameters()]
        online_weights = [each.detach() for each in self.online.parameters()]
        flat = flat_view(weights)
        online_flat = flat_view(online_weights)
        return (flat, online_flat) if len(flat) == len(online_flat) else (weights, online_weights)


class NoGradient:
    """A context without gradients of a module's parameters: a gradient through the module costs less."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]

    def __enter__(self) -> None:
        for parameter in self.parameters:
            parameter.requires_grad = False

    def __exit__(self, *failure: object) -> None:
        for parameter in self.parameters:
            parameter.requires_grad = True
