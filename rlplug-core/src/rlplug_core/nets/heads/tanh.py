"""Numbers in [-1, 1]: a Gaussian through a tanh."""

from __future__ import annotations

import math

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.arrays import namespace
from rlplug_core.errors import UsageError
from rlplug_core.nets.heads.gaussian import Gaussian
from rlplug_core.types import Array, Space


class SquashedGaussian(Gaussian):
    """tanh of a diagonal Gaussian: actions are in [-1, 1] (Haarnoja et al., 2018).

    Outputs are means and log standard deviations before the tanh, [B, 2 * dims]; the latter are clipped to `LOG_STD`.
    """

    #: Bounds of log standard deviations, as in the authors' code.
    LOG_STD = (-20.0, 2.0)
    #: The float32 below 1: an action that tanh rounds to 1 counts as this number, so that its density is finite.
    BOUND = 1 - 2.0**-24

    def sample(self, outputs: Array, noise: Array) -> Array:
        xp = namespace(outputs)
        mean = outputs[:, : self.dims]
        log_std = outputs[:, self.dims :].clip(*self.LOG_STD)
        action: Array = xp.tanh(mean + xp.exp(log_std) * noise)
        return action.reshape(-1, *self.shape)

    def mode(self, outputs: Array) -> Array:
        """Return tanh of the mean, as in the authors' evaluation: the median of every action."""
        action: Array = namespace(outputs).tanh(outputs[:, : self.dims])
        return action.reshape(-1, *self.shape)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        return self.log_prob(torch.from_numpy(outputs), torch.from_numpy(action)).numpy()

    @overridable
    def draw(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions by reparameterization: both results have gradients in `outputs`.

        Args:
            outputs: [B, 2 * dims] of the network.
            noise: [B, dims], standard normal.

        Returns:
            Actions [B, dims] in (-1, 1), and their log-probabilities [B] in nats.
        """
        mean, log_std = self._split(outputs)
        before = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        return before.tanh(), (normal - log_tanh_derivative(before)).sum(-1)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        before = action.reshape(len(outputs), self.dims).clamp(-self.BOUND, self.BOUND).atanh()
        normal = super().log_prob(torch.cat(self._split(outputs), -1), before)
        return normal - log_tanh_derivative(before).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the Gaussian's entropy plus the mean of log tanh' by Gauss-Hermite quadrature (no closed form)."""
        mean, log_std = self._split(outputs)
        points, weights = (
            outputs.new_tensor(part) for part in np.polynomial.hermite_e.hermegauss(64)
        )
        before = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points
        log_derivative = log_tanh_derivative(before) @ (weights / weights.sum())
        return (log_std + log_derivative).sum(-1) + 0.5 * self.dims * math.log(2 * math.pi * math.e)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        """Return the KL divergence of the Gaussians: tanh, a bijection, does not change it."""
        return super().kl(torch.cat(self._split(outputs), -1), torch.cat(self._split(other), -1))

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and the clipped log standard deviations."""
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(*self.LOG_STD)


def log_tanh_derivative(value: Tensor) -> Tensor:
    """Return log(1 - tanh(x)²), the log of tanh's derivative, without cancellation if tanh(x) rounds to 1."""
    return 2 * (math.log(2) - value - nn.functional.softplus(-2 * value))


def check_bounded(space: Space) -> None:
    """Raise UsageError unless a canonical space is a Box with finite bounds."""
    if not isinstance(space, spaces.Box) or (np.abs([space.low, space.high]) > 1).any():
        raise UsageError(
            f"a tanh needs bounds, and the actions in {space} have none; wrap the environment so that its action space "
            "is a Box with finite bounds, or use an algorithm without a tanh, such as ppo with net.squash false"
        )
