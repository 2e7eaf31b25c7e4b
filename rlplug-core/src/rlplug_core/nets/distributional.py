"""Networks of return distributions: on atoms (C51), as fixed quantiles (QR-DQN), as quantiles at any fractions (IQN).

`QNetwork` documents their common parts, such as dueling streams and noisy layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.nets import dense
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Obs, Spec


class CategoricalQ(QNetwork):
    """Log-probabilities [B, A, atoms] of returns on equally spaced atoms (Bellemare et al., 2017, arXiv:1707.06887).

    Args:
        low, high: the smallest and the largest return, the outer atoms; `support` [atoms] holds all of them.
    """

    support: Tensor

    def __init__(
        self,
        spec: Spec,
        net: Net,
        low: float,
        high: float,
        atoms: int,
        dueling: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
    ) -> None:
        super().__init__(spec, net, dueling=dueling, noisy=noisy, sigma=sigma, atoms=atoms)
        self.register_buffer("support", torch.linspace(low, high, atoms), persistent=False)

    def distribution(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """Compute the distributions of returns.

        Args:
            obs: [B, ...] observations.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            Log-probabilities [B, A, atoms] in nats.
        """
        return super().distribution(obs, noise).log_softmax(-1)

    def expected(self, distribution: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            distribution: [..., atoms] log-probabilities of the atoms in `support`.

        Returns:
            Action values [...].
        """
        return self.probabilities(distribution) @ self.support

    def probabilities(self, distribution: Tensor) -> Tensor:
        """Compute the probabilities of atoms.

        Args:
            distribution: [..., atoms] log-probabilities.

        Returns:
            [..., atoms].
        """
        return distribution.exp()


class QuantileQ(QNetwork):
    """Quantiles [B, A, atoms] of returns at fixed fractions, the `middles` (Dabney et al., 2018, arXiv:1710.10044)."""

    middles: Tensor

    def __init__(
        self,
        spec: Spec,
        net: Net,
        dueling: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
        atoms: int = 1,
    ) -> None:
        super().__init__(spec, net, dueling=dueling, noisy=noisy, sigma=sigma, atoms=atoms)
        self.register_buffer("middles", middles(atoms), persistent=False)

    def expected(self, distribution: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            distribution: [B, A, atoms] quantiles.

        Returns:
            Action values [B, A].
        """
        return distribution.mean(-1)


class ImplicitQ(QNetwork):
    """Quantiles [B, A, K] of returns at any K quantile fractions (Dabney et al., 2018, arXiv:1806.06923, section 3.1).

    A quantile fraction τ is embedded as φ(τ) = relu(W cos(π i τ) + b), i = 0 … cosines - 1 (eq. 4), and multiplies
    the features.

    Args:
        shares: an action value is the mean of this number of quantiles at evenly spaced fractions; the paper draws the
            fractions from U[0, 1], which adds noise.
    """

    cosines: Tensor
    middles: Tensor

    def __init__(
        self,
        spec: Spec,
        net: Net,
        shares: int = 32,
        dueling: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
        cosines: int = 64,
    ) -> None:
        super().__init__(spec, net, dueling, noisy, sigma)
        self.embedding = linear(cosines, self.features, net=net)
        self.register_buffer("cosines", math.pi * torch.arange(cosines), persistent=False)
        self.register_buffer("middles", middles(shares), persistent=False)

    def distribution(
        self,
        obs: Obs,
        noise: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute quantiles of returns.

        Args:
            obs: [B, ...] observations.
            noise: [size] of noisy layers; None for their mean weights.
            shares: [B, K] quantile fractions in [0, 1]; None for those of action values, the same in all rows.

        Returns:
            Quantiles [B, A, K].
        """
        shares = self.middles.unsqueeze(0) if shares is None else shares
        cosines = torch.cos(shares.unsqueeze(-1) * self.cosines)
        embedded = torch.relu(dense.linear(cosines, self.embedding.weight, self.embedding.bias))
        features = self.encoder(obs).unsqueeze(1) * embedded
        return self.heads(features, noise).squeeze(-1).transpose(1, 2)

    def at_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute quantiles of returns at the observations of a batch.

        Args:
            batch: B transitions.
            noise, shares: as of `distribution`.

        Returns:
            Quantiles [B, A, K].
        """
        return self.distribution(batch.obs, noise, shares)

    def after_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute quantiles of returns at the next observations of a batch.

        Args:
            batch: B transitions.
            noise, shares: as of `distribution`.

        Returns:
            Quantiles [B, A, K].
        """
        return self.distribution(batch.next_obs, noise, shares)

    def expected(self, distribution: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            distribution: [B, A, K] quantiles at evenly spaced fractions.

        Returns:
            Action values [B, A].
        """
        return distribution.mean(-1)


def middles(count: int) -> Tensor:
    """Return the middles [count] of `count` equal intervals of [0, 1]: (i + 1/2) / count."""
    return (torch.arange(count) + 0.5) / count
