"""Networks that algorithms compose: policy, critic, Q-values, each from the spaces and a `Net`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import network, overridable
from rlplug_core.batches import Samples
from rlplug_core.nets.actions import parts
from rlplug_core.nets.encoders import encoder, initialize_outputs, linear, observation_norm
from rlplug_core.nets.heads import (
    Head,
    HeadFactory,
    Product,
    check_mask,
    head,
    masked,
)
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise, check_sigma
from rlplug_core.nets.noisy_outputs import NoisyOutputs
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.nets.popart import PopArt
from rlplug_core.types import Array, Obs, Spec


class PolicyNetwork(nn.Module):
    """Observations to the outputs [B, size] of an action head, illegal actions masked.

    `make` builds the head; by default it is `head` with the Gaussian of `net`. With `noisy` the layers that feed the
    head are `NoisyLinear`s with the initial noise `sigma`.
    """

    columns: Tensor | None

    def __init__(
        self,
        spec: Spec,
        net: Net,
        trunk: tuple[nn.Module, int] | None = None,
        make: HeadFactory | None = None,
        norm: ObservationNorm | None = None,
        noisy: Noise | None = None,
        sigma: float | None = None,
    ) -> None:
        super().__init__()
        check_mask(spec)
        check_sigma(noisy, sigma)
        net.check_gaussian(
            make is None and any(isinstance(part.space, spaces.Box) for part in parts(spec.action))
        )
        make = make or partial(head, std=net.std, squash=net.squash, log_std=net.log_std_init)
        self.encoder, features = trunk or encoder(spec.obs, net, norm)
        self.head: Head
        self.head, self.outputs = make(spec.action, features)
        initialize_outputs(self.outputs, net)
        self.noisy = noisy is not None
        if noisy is not None:
            self.outputs = NoisyOutputs(self.outputs, noisy, sigma, net)
        columns = self.head.columns if isinstance(self.head, Product) else None
        self.register_buffer("columns", columns, persistent=False)

    @network
    def forward(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """Compute the parameters of the head's distributions.

        Args:
            obs: [B, ...] observations.
            noise: [B, ...] from `draw`, for noisy layers; None for their mean weights.

        Returns:
            Outputs [B, size]; illegal actions have the logit `ILLEGAL`.
        """
        features = self.encoder(obs)
        outputs: Tensor = self.outputs(features) if noise is None else self.outputs(features, noise)
        return masked(outputs, obs, self.columns) if isinstance(obs, dict) else outputs

    def draw(self, numbers: Array) -> Array:
        """Make the noise of noisy layers.

        Args:
            numbers: [...] int64, which noise; the same number always gives the same noise.

        Returns:
            Noise [..., size] float32.
        """
        assert isinstance(self.outputs, NoisyOutputs)
        return self.outputs.draw(numbers)

    def fresh_noise(self, generator: np.random.Generator) -> Array | None:
        """Draw one noise for all rows.

        Returns:
            Noise [size]; None if layers are plain.
        """
        return self.draw(generator.integers(2**63, size=1))[0] if self.noisy else None

    def noise_of(self, extras: Mapping[str, Array]) -> Array | None:
        """Return the noise that an agent acted with.

        Args:
            extras: the agent's extras, [T, N] each.

        Returns:
            Noise [T * N, size]; None if layers are plain.
        """
        return self.draw(extras["noise"].reshape(-1)) if self.noisy else None

    def with_noise(self, samples: Samples, noise: Array | None = None) -> Samples:
        """Add noise to samples for the loss; samples of a plain policy are unchanged.

        Args:
            samples: B rows from an agent of this policy.
            noise: [size] for all rows; None for the noise that the agent acted with.

        Returns:
            The samples with noise [B, size] in `extras["noise"]`, in place of its numbers [B].
        """
        if not self.noisy:
            return samples
        numbers = samples.extras["noise"]
        drawn = (
            self.draw(numbers.cpu().numpy()) if noise is None else np.tile(noise, (len(numbers), 1))
        )
        extras = {**samples.extras, "noise": torch.from_numpy(drawn).to(numbers.device)}
        return replace(samples, share=samples.counts, extras=extras)

    def on(self, features: Tensor, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """Compute outputs from the encoder's features.

        Args:
            features: [B, F].
            obs: [B, ...] the observations, which may carry an action mask.
            noise: as in `forward`.

        Returns:
            Outputs [B, size]; illegal actions have the logit `ILLEGAL`.
        """
        outputs = self.outputs(features) if noise is None else self.outputs(features, noise)
        return masked(outputs, obs, self.columns)


class Valued(nn.Module):
    """The base of critics: features to state values [B]; with PopArt values of any size are learned as those of size 1.

    What losses and learners do about PopArt is the same without it: they divide the errors of values by `unit`,
    and advantages (Hessel et al., 2019, arXiv:1809.04474), and give `absorb` the targets when an update ends.
    """

    output: nn.Module

    def on(self, features: Tensor) -> Tensor:
        """The values from features [B, F]."""
        value: Tensor = self.output(features)
        return value.squeeze(-1)

    @property
    def unit(self) -> Tensor | float:
        """Return the unit of value errors."""
        return self.output.scale if isinstance(self.output, PopArt) else 1.0

    @overridable
    def unit_beside(self, value: Tensor) -> Tensor | float:
        """Return the unit of value errors."""
        return self.unit

    def absorb(self, batch: Samples) -> Tensor | float:
        """Learn the size of values from a batch's targets; no value changes by it, up to rounding.

        Gives the old unit over the new one, which the weights of the output layer were multiplied by.
        """
        return (
            self.output.absorb(batch.target, batch.weight)
            if isinstance(self.output, PopArt)
            else 1.0
        )


class Critic(Valued):
    """Observations to state values [B], with PopArt if asked for."""

    def __init__(
        self,
        spec: Spec,
        net: Net,
        trunk: tuple[nn.Module, int] | None = None,
        popart: bool = False,
        norm: ObservationNorm | None = None,
    ) -> None:
        super().__init__()
        self.encoder, features = trunk or encoder(spec.obs, net, norm)
        self.output = value_layer(features, popart, net)

    @network
    def forward(self, obs: Obs) -> Tensor:
        """Compute V(s).

        Args:
            obs: [B, ...] observations.

        Returns:
            Values [B].
        """
        return self.on(self.encoder(obs))


def value_layer(features: int, popart: bool, net: Net) -> nn.Module:
    """The last layer of a critic."""
    return PopArt(features, net=net) if popart else linear(features, 1, 1.0, net)


class PolicyAndCritic:
    """A policy and a critic trained by one loss; with `net.shared` both use one trunk, which a call runs once.

    It is not a module: the learner holds `policy` and `critic` itself. Optimizers count shared parameters once. With
    `noisy` the policy has noisy layers; the critic does not act and has none.
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        popart: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
    ) -> None:
        self.shared, net = net.shared, replace(net, shared=False)
        norm = observation_norm(spec.obs, net)
        trunk = encoder(spec.obs, net, norm) if self.shared else None
        self.policy = PolicyNetwork(spec, net, trunk, norm=norm, noisy=noisy, sigma=sigma)
        self.critic = Critic(spec, net, trunk, popart, norm)

    def __call__(self, obs: Obs, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs of the action head [B, size] and values [B]; `noise` as `PolicyNetwork` takes it."""
        if not self.shared:
            return self.policy(obs, noise), self.critic(obs)
        features = self.policy.encoder(obs)
        return self.policy.on(features, obs, noise), self.critic.on(features)
