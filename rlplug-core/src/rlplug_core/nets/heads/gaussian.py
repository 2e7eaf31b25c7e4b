"""Unbounded numbers: a diagonal Gaussian; its deviation is the same for all states or depends on the state."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import kernel, overridable
from rlplug_core.arrays import namespace
from rlplug_core.types import Array


class Gaussian:
    """A diagonal Gaussian over `dims` numbers; outputs are means and log standard deviations, [B, 2 * dims].

    Actions are canonical ([-1, 1] inside the bounds) and unclipped; the environment clips them.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.dims = math.prod(shape)
        self.size = 2 * self.dims
        self.constant = -0.5 * self.dims * math.log(2 * math.pi)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        return generator.standard_normal((*shape, self.dims), dtype=np.float32)

    @kernel
    def sample(self, outputs: Array, noise: Array) -> Array:
        action: Array = (
            outputs[:, : self.dims] + namespace(outputs).exp(outputs[:, self.dims :]) * noise
        )
        return action if action.shape[1:] == self.shape else action.reshape(-1, *self.shape)

    def mode(self, outputs: Array) -> Array:
        return outputs[:, : self.dims].reshape(-1, *self.shape)

    @kernel
    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        flat = action if action.ndim == 2 else action.reshape(len(outputs), self.dims)
        mean = outputs[:, : self.dims]
        log_std = outputs[:, self.dims :]
        scaled = (flat - mean) * np.exp(-log_std)
        # A product with ones sums rows in a third of the time.
        ones = np.ones(self.dims, mean.dtype)
        log_prob: Array = np.square(scaled).dot(ones) * -0.5 - log_std.dot(ones) + self.constant
        return log_prob.astype(np.float32, copy=False)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        scaled = (action.reshape(mean.shape) - mean) * (-log_std).exp()
        return (-0.5 * scaled.square() - log_std).sum(-1) + self.constant

    def entropy(self, outputs: Tensor) -> Tensor:
        return outputs[:, self.dims :].sum(-1) + 0.5 * self.dims * math.log(2 * math.pi * math.e)

    @overridable
    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Compute both, [B] each."""
        return self.log_prob(outputs, action), self.entropy(outputs)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        (mean, log_std), (other_mean, other_log_std) = outputs.chunk(2, -1), other.chunk(2, -1)
        square = (2 * log_std).exp() + (mean - other_mean).square()
        return (other_log_std - log_std + 0.5 * square * (-2 * other_log_std).exp() - 0.5).sum(-1)


class LogStd(nn.Module):
    """Appends a log standard deviation to means [B, d], giving [B, 2 d]; it is a parameter that starts at `initial`."""

    def __init__(self, dims: int, initial: float = 0.0) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((dims,), initial))

    @overridable
    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)

    def hold(self, low: float, high: float) -> None:
        """Clip the parameters to these bounds; a step may have moved them out."""
        with torch.no_grad():
            self.log_std.clamp_(low, high)
