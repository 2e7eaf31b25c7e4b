"""Policies and critics, made from the spaces of an environment and the options of a `Net`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import network
from rlplug_core.arrays import to_host
from rlplug_core.batches import Rollout, Samples
from rlplug_core.nets.actions import parts
from rlplug_core.nets.encoders import encoder, observation_norms
from rlplug_core.nets.former_names import former_method
from rlplug_core.nets.heads import Head, HeadFactory, Product, check_mask, head, masked
from rlplug_core.nets.initial_weights import initialize_outputs, linear
from rlplug_core.nets.memory_trunk import MemoryTrunk
from rlplug_core.nets.net import CriticNet, Net
from rlplug_core.nets.noisy import Noise, check_sigma
from rlplug_core.nets.noisy_outputs import NoisyOutputs
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.nets.popart import PopArt
from rlplug_core.types import Array, Obs, Spec


class PolicyNetwork(nn.Module):
    """Maps observations to the outputs [B, size] of an action head; illegal actions are masked.

    `make` builds the head; by default it is `head`, with the options of `net` for Gaussians. With `noisy`, the layers
    that feed the head are `NoisyLinear`s with the initial noise `sigma`. `trunk` is an encoder that is shared with a
    critic, and its number of features.
    """

    #: [M] the outputs that an action mask applies to; None if it applies to all.
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
        #: The policy's own memory, if it has one; it computes the inputs of `forward`.
        self.trunk: MemoryTrunk | None = None
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
            numbers: [...] int64 seeds of the noise; the same seed always gives the same noise.

        Returns:
            Noise [..., size] float32.
        """
        assert isinstance(self.outputs, NoisyOutputs)
        return self.outputs.draw(numbers)

    def fresh_noise(self, generator: np.random.Generator) -> Array | None:
        """Draw noise that is the same for all rows.

        Returns:
            Noise [size]; None if no layer is noisy.
        """
        return self.draw(generator.integers(2**63, size=1))[0] if self.noisy else None

    def noise_of(self, extras: Mapping[str, Array]) -> Array | None:
        """Return the noise that an agent acted with.

        Args:
            extras: the agent's extras, [T, N] each.

        Returns:
            Noise [T * N, size]; None if no layer is noisy.
        """
        return self.draw(to_host(extras["noise"]).reshape(-1)) if self.noisy else None

    def with_noise(
        self,
        samples: Samples,
        noise: Array | None = None,
    ) -> Samples:
        """Add noise to samples for the loss; samples of a plain policy are unchanged.

        Args:
            samples: B rows from an agent of this policy.
            noise: [size] for all rows; None for the noise that the agent acted with.

        Returns:
            The samples with noise [B, size] in `extras["noise"]`, in place of its seeds [B].
        """
        if not self.noisy:
            return samples
        seeds = samples.extras["noise"]
        drawn = self.draw(seeds.cpu().numpy()) if noise is None else np.tile(noise, (len(seeds), 1))
        extras = {**samples.extras, "noise": torch.from_numpy(drawn).to(seeds.device)}
        return replace(samples, share=samples.counts, extras=extras)

    def from_features(
        self,
        features: Tensor,
        obs: Obs,
        noise: Tensor | None = None,
    ) -> Tensor:
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

    on = former_method("on", "from_features")


class ValueFunction(nn.Module):
    """The base of critics: a subclass defines the last layer, `output`, and the method `normalized`.

    A call returns values V(s) [B] in the unit of rewards. A loss compares `normalized` values with the targets of
    `normalize(samples)`; a learner calls `update_stats` once per update. Only PopArt normalizes; without it,
    `normalized` returns the values themselves.
    """

    output: nn.Module

    def forward(self, *inputs: Obs) -> Tensor:
        """Compute values [B] in the unit of rewards; the inputs are those of `normalized`."""
        value = self.normalized(*inputs)
        output = self.output
        return value * output.scale + output.shift if isinstance(output, PopArt) else value

    def normalized(self, *inputs: Obs) -> Tensor:
        """Compute values [B] in the unit of normalized targets, for a loss."""
        raise NotImplementedError(f"{type(self).__name__} does not define normalized(...)")

    def from_features(self, features: Tensor) -> Tensor:
        """Compute normalized values [B] from features [B, F]."""
        value: Tensor = self.output(features)
        return value.squeeze(-1)

    on = former_method("on", "from_features")

    def normalize(self, samples: Samples) -> Samples:
        """Return samples with advantages and targets in the unit of `normalized` (Hessel et al., 2019, section 3)."""
        output = self.output
        if not isinstance(output, PopArt):
            return samples
        target = (samples.target - output.shift) / output.scale
        advantage = samples.advantage / output.scale
        return replace(samples, share=samples.counts, target=target, advantage=advantage)

    def update_stats(self, samples: Samples) -> Tensor | float:
        """Update the statistics of targets with samples in the unit of rewards; values stay equal up to rounding.

        Returns:
            The factor by which the weights of `output` were multiplied; 1 without PopArt.
        """
        output = self.output
        if not isinstance(output, PopArt):
            return 1.0
        return output.update_stats(samples.target, samples.weight)


class Critic(ValueFunction):
    """Maps observations to state values [B], with PopArt if `popart`."""

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
    def normalized(self, obs: Obs) -> Tensor:
        """Compute V(s) in the unit of normalized targets.

        Args:
            obs: [B, ...] observations.

        Returns:
            Normalized values [B].
        """
        return self.from_features(self.encoder(obs))


def value_layer(features: int, popart: bool, net: Net) -> nn.Module:
    """Return the last layer of a critic."""
    return PopArt(features, net=net) if popart else linear(features, 1, 1.0, net)


class PolicyAndCritic:
    """A policy and a critic trained by one loss; with `net.shared` both use one trunk, which a call runs once.

    It is not a module: the learner has `policy` and `critic` as attributes. Optimizers count shared parameters once.
    With `noisy` the policy has noisy layers; the critic does not act and has none. `critic_net` has the options of the
    critic's network that differ from those of `net`, such as other observations.
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        popart: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
        critic_net: CriticNet | None = None,
    ) -> None:
        critic_options = (critic_net or CriticNet()).over(net)
        self.shared, net = net.shared, replace(net, shared=False)
        norm, critic_norm = observation_norms(spec.obs, net, critic_options)
        trunk = encoder(spec.obs, net, norm) if self.shared else None
        self.policy = PolicyNetwork(spec, net, trunk, norm=norm, noisy=noisy, sigma=sigma)
        self.critic = Critic(spec, critic_options, trunk, popart, critic_norm)

    def __call__(
        self,
        obs: Obs,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute outputs of the action head [B, size] and normalized values [B], with the noise of `PolicyNetwork`."""
        if not self.shared:
            return self.policy(obs, noise), self.critic.normalized(obs)
        features = self.policy.encoder(obs)
        return self.policy.from_features(features, obs, noise), self.critic.from_features(features)

    def samples(
        self,
        rollout: Rollout,
        advantage: Array,
        target: Array,
        device: torch.device,
    ) -> Samples:
        """Return the samples of a rollout for these networks, with the noise of its policy.

        Args:
            rollout: T steps of N environments.
            advantage, target: [T, N], as `Rollout.samples` takes them.
            device: device of the tensors.
        """
        samples = rollout.samples(advantage, target, device)
        return self.policy.with_noise(samples) if self.policy.noisy else samples

    def critic_samples(self, samples: Samples) -> Samples:
        """Return samples with the critic's inputs as `obs`; without a memory, the same samples."""
        return samples
