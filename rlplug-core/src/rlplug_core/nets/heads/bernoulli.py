"""Switches: each on or off."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor
from torch.nn.functional import softplus

from rlplug_core.arrays import cast
from rlplug_core.types import Array


class Bernoulli:
    """0 or 1 in each of several places, independently; outputs are the logits of 1, [B, places]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        return cast(generator.logistic(size=(*shape, self.size)), np.float32)

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Sample bits: a logit plus logistic noise is above 0 with the probability of a 1."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Array) -> Array:
        return cast(outputs > 0, np.int8).reshape(-1, *self.shape)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        signs = 1 - 2 * action.reshape(outputs.shape).astype(np.float32)
        return -np.logaddexp(0, signs * outputs).sum(-1)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        signs = 1 - 2 * action.flatten(1).to(outputs.dtype)
        return -softplus(signs * outputs).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        return (softplus(outputs) - outputs * outputs.sigmoid()).sum(-1)

    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        return self.log_prob(outputs, action), self.entropy(outputs)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        """log((1 - q) / (1 - p)) + p (logit p - logit q) in each place."""
        return (softplus(other) - softplus(outputs) + outputs.sigmoid() * (outputs - other)).sum(-1)
