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

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Noise [*shape, k] from which `sample` makes actions."""
        ...

    def sample(self, outputs: Array, noise: Array) -> Array: ...
    def mode(self, outputs: Array) -> Array: ...
    def host_log_prob(self, outputs: Array, action: Array) -> Array: ...
    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor: ...
    def entropy(self, outputs: Tensor) -> Tensor: ...
    def log_prob_and_entropy(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]: ...
    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        """The Kullback-Leibler divergence [B] from the distributions of `outputs` to those of `other`."""
        ...


#: Makes a head and the layer that feeds it from an action space and a number of features.
HeadFactory: TypeAlias = Callable[[Space, int], tuple[Head, nn.Module]]
