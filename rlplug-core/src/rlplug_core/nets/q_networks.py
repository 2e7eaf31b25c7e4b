"""Q-networks: one value per action, optionally dueling and with noisy layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import network, overridable
from rlplug_core.batches import Transitions
from rlplug_core.nets import dense
from rlplug_core.nets.continuous import Ensemble
from rlplug_core.nets.encoders import ACTIVATIONS, encoder, layer_norm
from rlplug_core.nets.former_names import former_method
from rlplug_core.nets.heads import check_mask, masked
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.net import Net, at_layer
from rlplug_core.nets.noisy import Noise, NoisyLinear, check_sigma
from rlplug_core.nets.noisy_outputs import check_no_output_gain
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.types import Array, Obs, Space, Spec


class Stream(nn.Module):
    """The last hidden layer of `net` and an output layer: features [..., F] to outputs [..., size].

    With `noisy` both are noisy layers: `forward` takes the noise of `draw` as one tensor. Without noise, the layers use
    their mean weights.
    """

    def __init__(
        self,
        features: int,
        net: Net,
        size: int,
        noisy: Noise | None,
        sigma: float | None,
    ) -> None:
        super().__init__()
        widths = (features, *net.hidden[-1:], size)
        if noisy is None:
            gains = [None] * (len(widths) - 2) + [net.output_gain or 1.0]
            layers: list[Any] = [
                linear(*pair, gain, net) for pair, gain in zip(pairwise(widths), gains, strict=True)
            ]
        else:
            check_no_output_gain(net)
            layers = [NoisyLinear(*pair, noisy, sigma) for pair in pairwise(widths)]
        self.linears = nn.ModuleList(layers)
        self.norms = nn.ModuleList(
            norm for width in net.hidden[-1:] for norm in layer_norm(width, net)
        )
        self.sizes = [] if noisy is None else [layer.size for layer in layers]
        self.activation = ACTIVATIONS[at_layer(net.activation, -1)]
        self.last = len(layers) - 1

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        noises = None if noise is None else noise.split(self.sizes)
        for number, layer in enumerate(self.linears):
            if noises is None:
                parameters = layer._parameters  # faster than attributes of a module
                features = dense.linear(features, parameters["weight"], parameters["bias"])  # type: ignore[arg-type]
            else:
                features = layer(features, noises[number])
            if number < self.last:
                features = self.activation(self.norms[number](features) if self.norms else features)
        return features

    def draw(self, generator: np.random.Generator) -> list[Array]:
        """Draw noise for each noisy layer."""
        return [layer.draw(generator) for layer in self.linears if isinstance(layer, NoisyLinear)]


class QNetwork(nn.Module):
    """Maps observations to action values [B, A].

    Losses use `distribution`, which returns `atoms` numbers for each action; `expected` computes values from them.
    Subclasses may override both. The last hidden layer of `net` belongs to the streams.

    Args:
        spec: spec of the environment; actions are Discrete.
        net: options of the layers.
        dueling: compute V + A - mean A with a stream each for V and A (Wang et al., 2016, arXiv:1511.06581, eq. 9).
        noisy: make the layers of the streams `NoisyLinear`s.
        sigma: initial standard deviation of the noise; None: the paper's.
        atoms: numbers per action.
        norm: normalizes observations.
        trunk: a module that replaces the layers before the streams, and its number of features.
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        dueling: bool = False,
        noisy: Noise | None = None,
        sigma: float | None = None,
        atoms: int = 1,
        norm: ObservationNorm | None = None,
        trunk: tuple[nn.Module, int] | None = None,
    ) -> None:
        super().__init__()
        check_mask(spec)
        net.check_gaussian(free=False)
        check_sigma(noisy, sigma)
        self.actions = actions_of(spec.action)
        self.atoms = atoms
        self.encoder, self.features = trunk or encoder(spec.obs, net.part(slice(-1)), norm)
        self.advantage = Stream(self.features, net, self.actions * atoms, noisy, sigma)
        self.value = Stream(self.features, net, atoms, noisy, sigma) if dueling else None
        self.noisy = noisy is not None

    def forward(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """Compute Q(s, a) of all actions.

        Args:
            obs: [B, ...] observations.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            Action values [B, A]; those of illegal actions are `ILLEGAL`.
        """
        return masked(self.expected(self.distribution(obs, noise)), obs)

    @network
    def distribution(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """Compute the distributions of returns.

        Args:
            obs: [B, ...] observations.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            The numbers [B, A, atoms] that describe them; a single atom is the action value itself.
        """
        return self.heads(self.encoder(obs), noise)

    def at_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Compute the distributions of returns at the observations of a batch.

        Args:
            batch: B transitions.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            The numbers [B, A, atoms] that describe them.
        """
        return self.distribution(batch.obs, noise)

    of_steps = former_method("of_steps", "at_steps")

    def after_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Compute the distributions of returns at the next observations of a batch.

        Args:
            batch: B transitions.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            The numbers [B, A, atoms] that describe them.
        """
        return self.distribution(batch.next_obs, noise)

    def expected(self, distribution: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            distribution: [B, A, atoms] as `distribution` gives them.

        Returns:
            Action values [B, A].
        """
        return distribution.squeeze(-1)

    def heads(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Compute the outputs of the streams.

        Args:
            features: [..., F] outputs of the encoder.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            The numbers [..., A, atoms] that describe distributions of returns.
        """
        noises: Sequence[Tensor | None] = [None] * 2
        if noise is not None:
            noises = noise.split([sum(stream.sizes) for stream in self.streams])
        advantage: Tensor = self.advantage(features, noises[0]).unflatten(
            -1, (self.actions, self.atoms)
        )
        if self.value is None:
            return advantage
        value: Tensor = self.value(features, noises[1]).unsqueeze(-2)
        return dueling(value, advantage)

    @property
    def streams(self) -> list[Stream]:
        """Return the stream of advantages and, with `dueling`, the stream of the value."""
        return [self.advantage] if self.value is None else [self.advantage, self.value]

    def noise(
        self,
        generator: np.random.Generator,
        uses: int,
    ) -> list[Tensor] | list[None]:
        """Draw noise [size] for each of `uses` forward passes; None for each if no layer is noisy."""
        if not self.noisy:
            return [None] * uses
        device = next(self.parameters()).device
        noise = np.stack([self.draw(generator) for _ in range(uses)])
        return list(torch.from_numpy(noise).to(device, non_blocking=True))

    def host_noise(
        self,
        generator: np.random.Generator,
        uses: int,
    ) -> list[Array] | list[None]:
        """Draw noise as `noise` does, as arrays."""
        return [self.draw(generator) for _ in range(uses)] if self.noisy else [None] * uses

    def on_device(self, noise: Array | None) -> Tensor | None:
        """Move noise to the network's device.

        Args:
            noise: [size], a result of `draw`, or None.

        Returns:
            The same as a tensor [size], or None.
        """
        return None if noise is None else torch.from_numpy(noise).to(next(self.parameters()).device)

    def draw(self, generator: np.random.Generator) -> Array:
        """Draw noise [size] for one forward pass of the network."""
        return np.concatenate([part for stream in self.streams for part in stream.draw(generator)])


class QNetworks(Ensemble):
    """An ensemble of `QNetwork`s: observations to action values [n, B, A]."""

    def values_of_actions(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute the values of the actions that were taken.

        Args:
            obs: [B, ...] observations.
            action: [B] the numbers of these actions.

        Returns:
            Values [n, B] by all n networks.
        """
        networks: Any = self.members
        values: Tensor = torch.stack(
            [gather_actions(network.distribution(obs), action) for network in networks]
        )
        return values.squeeze(-1)


@overridable
def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    """Compute V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9).

    Args:
        value: [..., 1, atoms].
        advantage: [..., A, atoms].

    Returns:
        [..., A, atoms].
    """
    return value + advantage - advantage.mean(-2, keepdim=True)


@overridable
def gather_actions(distribution: Tensor, action: Tensor) -> Tensor:
    """Take the distributions of the actions that were chosen.

    Args:
        distribution: [B, A, atoms].
        action: [B] the numbers of these actions.

    Returns:
        [B, atoms].
    """
    index = action.view(-1, 1, 1).expand(-1, 1, distribution.shape[2])
    return distribution.gather(1, index).squeeze(1)


class ActionValues(Protocol):
    """The methods of a network of action values that `next_distribution` calls; the network may have a memory."""

    def after_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
    ) -> Tensor: ...

    def expected(self, distribution: Tensor) -> Tensor: ...


@torch.no_grad()
def next_distribution(
    online: ActionValues,
    target: ActionValues,
    batch: Transitions,
    noise: Sequence[Tensor | None],
    double: bool,
) -> Tensor:
    """Compute the target network's distributions of returns for the best next actions.

    Args:
        online, target: networks of one kind.
        batch: transitions, or sequences for networks with a memory.
        noise: [size] for the target network and, with `double`, for the online network; None if no layer is noisy.
        double: whether the online network chooses the action (van Hasselt et al., 2016, arXiv:1509.06461).

    Returns:
        [B, atoms], without a gradient.
    """
    distribution = target.after_steps(batch, noise[0])
    values = masked(target.expected(distribution), batch.next_obs)
    if double:
        values = masked(online.expected(online.after_steps(batch, noise[1])), batch.next_obs)
    return gather_actions(distribution, values.argmax(1))


def actions_of(space: Space) -> int:
    """Return the number of actions of a Discrete space."""
    assert isinstance(space, spaces.Discrete)
    return int(space.n)
