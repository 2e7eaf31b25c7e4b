"""The protocol of heads, which read a network's outputs as a distribution over actions, and of their factories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from torch import Tensor, nn

from rlplug_core.types import Array, Space


class Head(Protocol):
    """A distribution over actions, given outputs [B, size]; log-probabilities and entropies are [B]."""

    size: int

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        """Draw noise [*shape, k] for `sample`."""
        ...

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Draw actions on the host.

        Args:
            outputs: [B, size] of the network.
            noise: [B, k] as `noise` makes it.

        Returns:
            Actions [B, ...] in the action space.
        """
        ...

    def mode(self, outputs: Array) -> Array:
        """Return the most likely actions, or the distribution's substitute for them.

        Args:
            outputs: [B, size] of the network.

        Returns:
            Actions [B, ...] in the action space.
        """
        ...

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        """Compute `log_prob` of arrays.

        Args:
            outputs: [B, size] of the network.
            action: [B, ...] as `sample` gives them.

        Returns:
            Log-probabilities [B] in nats; log-densities for continuous actions.
        """
        ...

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Compute log-probabilities with gradients in `outputs`.

        Args:
            outputs: [B, size] of the network.
            action: [B, ...] as `sample` gives them.

        Returns:
            Log-probabilities [B] in nats; log-densities for continuous actions.
        """
        ...

    def entropy(self, outputs: Tensor) -> Tensor:
        """Compute the entropy with gradients in `outputs`.

        Args:
            outputs: [B, size] of the network.

        Returns:
            Entropies [B] in nats.
        """
        ...

    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities and entropies at once, which takes less time than two calls.

        Args:
            outputs: [B, size] of the network.
            action: [B, ...] as `sample` gives them.

        Returns:
            Log-probabilities [B] and entropies [B] in nats.
        """
        ...

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from the distributions of `outputs` to those of `other`.

        Args:
            outputs, other: [B, size] of two networks, or of one before and after an update.

        Returns:
            KL(outputs || other), [B] in nats.
        """
        ...


#: Makes a head and the layer that feeds it from an action space and a number of features.
HeadFactory: TypeAlias = Callable[[Space, int], tuple[Head, nn.Module]]
