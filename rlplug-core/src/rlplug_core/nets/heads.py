"""Action heads: what a network's outputs mean as a distribution over actions.

Sampling is numpy on the host, where environments live; log-probabilities and entropies for losses are torch. The heads
are plain arithmetic: torch's validated `Categorical` costs 2.6 times as much (architecture notes, 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import MASK, linear
from rlplug_core.types import Array, Obs

#: What the logit of an illegal action becomes; finite, so that nothing downstream turns into NaN.
ILLEGAL = -1e8


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


class Categorical:
    """One of `size` actions; outputs are logits."""

    def __init__(self, size: int) -> None:
        self.size = size

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return generator.gumbel(size=(*shape, self.size)).astype(np.float32)

    def sample(self, outputs: Array, noise: Array) -> Array:
        """The Gumbel-max trick: argmax(logits + Gumbel noise) is a draw from softmax(logits)."""
        action: Array = (outputs + noise).argmax(-1)
        return action

    def mode(self, outputs: Array) -> Array:
        action: Array = outputs.argmax(-1)
        return action

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        shifted = outputs - outputs.max(-1, keepdims=True)
        chosen = shifted[np.arange(len(action)), action]
        log_prob: Array = chosen - np.log(np.exp(shifted).sum(-1))
        return log_prob

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return outputs.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        log_probs = outputs.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def log_prob_and_entropy(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one normalisation."""
        log_probs = outputs.log_softmax(-1)
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        log_probs = outputs.log_softmax(-1)
        return (log_probs.exp() * (log_probs - other.log_softmax(-1))).sum(-1)


class Gaussian:
    """A diagonal Gaussian over `dims` numbers; outputs are means and log standard deviations, [B, 2 * dims].

    Actions are canonical ([-1, 1] inside the bounds) and unclipped; the environment clips what it executes.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.dims = math.prod(shape)
        self.size = 2 * self.dims

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return generator.standard_normal((*shape, self.dims), dtype=np.float32)

    def sample(self, outputs: Array, noise: Array) -> Array:
        mean, log_std = outputs[:, : self.dims], outputs[:, self.dims :]
        action: Array = mean + np.exp(log_std) * noise
        return action.reshape(-1, *self.shape)

    def mode(self, outputs: Array) -> Array:
        return outputs[:, : self.dims].reshape(-1, *self.shape)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        mean, log_std = outputs[:, : self.dims], outputs[:, self.dims :]
        scaled = (action.reshape(len(action), -1) - mean) * np.exp(-log_std)
        log_prob: Array = (-0.5 * scaled**2 - log_std).sum(-1) - 0.5 * self.dims * math.log(2 * math.pi)
        return log_prob.astype(np.float32, copy=False)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        mean, log_std = outputs.chunk(2, -1)
        scaled = (action.flatten(1) - mean) * (-log_std).exp()
        return (-0.5 * scaled.square() - log_std).sum(-1) - 0.5 * self.dims * math.log(2 * math.pi)

    def entropy(self, outputs: Tensor) -> Tensor:
        return outputs[:, self.dims :].sum(-1) + 0.5 * self.dims * math.log(2 * math.pi * math.e)

    def log_prob_and_entropy(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_prob(outputs, action), self.entropy(outputs)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        (mean, log_std), (other_mean, other_log_std) = outputs.chunk(2, -1), other.chunk(2, -1)
        square = (2 * log_std).exp() + (mean - other_mean).square()
        return (other_log_std - log_std + 0.5 * square * (-2 * other_log_std).exp() - 0.5).sum(-1)


class SquashedGaussian(Gaussian):
    """tanh of a diagonal Gaussian whose deviation depends on the state: actions lie in [-1, 1] (Haarnoja et al., 2018).

    Outputs are means and log standard deviations before the tanh, [B, 2 * dims]; the latter are held in `LOG_STD`.
    """

    #: Bounds of log standard deviations, as in the authors' code.
    LOG_STD = (-20.0, 2.0)
    #: The float32 next to 1: where tanh has rounded to 1 an action counts as this one, so that its density is finite.
    BOUND = 1 - 2.0**-24

    def sample(self, outputs: Array, noise: Array) -> Array:
        mean, log_std = outputs[:, : self.dims], outputs[:, self.dims :].clip(*self.LOG_STD)
        action: Array = np.tanh(mean + np.exp(log_std) * noise)
        return action.reshape(-1, *self.shape)

    def mode(self, outputs: Array) -> Array:
        """tanh of the mean, as in the authors' evaluation: the median of every action."""
        action: Array = np.tanh(outputs[:, : self.dims])
        return action.reshape(-1, *self.shape)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        log_prob: Array = self.log_prob(torch.from_numpy(outputs), torch.from_numpy(action)).numpy()
        return log_prob

    def draw(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [B, dims] made of standard normal `noise`, and their log-probabilities [B]; both have gradients."""
        mean, log_std = self._parts(outputs)
        before = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        return before.tanh(), (normal - log_slope(before)).sum(-1)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        before = action.flatten(1).clamp(-self.BOUND, self.BOUND).atanh()
        normal = super().log_prob(torch.cat(self._parts(outputs), -1), before)
        return normal - log_slope(before).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """The Gaussian's and the mean of log tanh', by Gauss-Hermite quadrature: there is no closed form."""
        mean, log_std = self._parts(outputs)
        points, weights = (outputs.new_tensor(part) for part in np.polynomial.hermite_e.hermegauss(64))
        slope = log_slope(mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points) @ (weights / weights.sum())
        return (log_std + slope).sum(-1) + 0.5 * self.dims * math.log(2 * math.pi * math.e)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        """That of the Gaussians: what is done to both alike changes no divergence."""
        return super().kl(torch.cat(self._parts(outputs), -1), torch.cat(self._parts(other), -1))

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(*self.LOG_STD)


def log_slope(value: Tensor) -> Tensor:
    """log(1 - tanh(x)²), the log of tanh's slope, without cancellation where tanh(x) rounds to 1."""
    return 2 * (math.log(2) - value - nn.functional.softplus(-2 * value))


class LogStd(nn.Module):
    """Appends a state-independent log standard deviation to means [B, d], giving [B, 2 d]."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(dims))

    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


def head(space: spaces.Space[Any], features: int, gain: float = 0.01) -> tuple[Head, nn.Module]:
    """The head for an action space and the layer that feeds it from features [B, F].

    Raises:
        UsageError: the space is neither Discrete nor Box.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n)), linear(features, int(space.n), gain)
    if isinstance(space, spaces.Box):
        gaussian = Gaussian(space.shape)
        return gaussian, nn.Sequential(linear(features, gaussian.dims, gain), LogStd(gaussian.dims))
    raise UsageError(f"no policy head for actions in {space}; Discrete and Box have one")


#: Makes a head and the layer that feeds it from an action space and a number of features.
HeadFactory: TypeAlias = Callable[[spaces.Space[Any], int], tuple[Head, nn.Module]]


def squashed(space: spaces.Space[Any], features: int, gain: float = 0.01) -> tuple[Head, nn.Module]:
    """The squashed Gaussian for a Box of finite bounds, and the layer that feeds it.

    Raises:
        UsageError: the space is no Box, or has no finite bounds.
    """
    check_bounded(space)
    gaussian = SquashedGaussian(space.shape or ())
    return gaussian, linear(features, gaussian.size, gain)


def check_bounded(space: spaces.Space[Any]) -> None:
    """Raise UsageError unless the canonical space is a Box whose true bounds are finite."""
    if not isinstance(space, spaces.Box) or (np.abs([space.low, space.high]) > 1).any():
        raise UsageError(
            f"a tanh needs bounds, and the actions in {space} have none; wrap the environment so that its action space "
            "is a Box with finite bounds, or use an algorithm without a tanh, such as ppo"
        )


def masked(outputs: Tensor, obs: Obs) -> Tensor:
    """`outputs` [B, A] with illegal actions at `ILLEGAL`, where the observation carries an action mask."""
    if isinstance(obs, dict) and MASK in obs:
        return outputs.masked_fill(obs[MASK] == 0, ILLEGAL)
    return outputs
