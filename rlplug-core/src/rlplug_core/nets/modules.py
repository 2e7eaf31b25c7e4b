"""Networks that algorithms compose: policy, critic, Q-values, each from the spaces and a `Net`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
from torch import Tensor, nn

from rlplug_core import products
from rlplug_core.actions import parts
from rlplug_core.batches import Samples
from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import activation, encoder, initialise_outputs, layer_norm, linear
from rlplug_core.nets.heads import Head, HeadFactory, Product, check_mask, head, masked
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise, NoisyLinear
from rlplug_core.nets.popart import PopArt
from rlplug_core.types import Array, Obs, Spec


class Policy(nn.Module):
    """Observations to the outputs [B, size] of an action head, illegal actions masked.

    `make` builds the head; without it that is `head`, with the Gaussian that `net` says.
    """

    columns: Tensor | None

    def __init__(
        self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None, make: HeadFactory | None = None
    ) -> None:
        super().__init__()
        check_mask(spec)
        net.check_gaussian(make is None and any(isinstance(part.space, spaces.Box) for part in parts(spec.action)))
        make = make or partial(head, std=net.std, squash=net.squash)
        self.encoder, features = trunk or encoder(spec.obs, net)
        self.head: Head
        self.head, self.outputs = make(spec.action, features)
        initialise_outputs(self.outputs, net)
        columns = self.head.columns if isinstance(self.head, Product) else None
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, obs: Obs) -> Tensor:
        return self.on(self.encoder(obs), obs)

    def on(self, features: Tensor, obs: Obs) -> Tensor:
        """The outputs from what the encoder made of `obs`."""
        return masked(self.outputs(features), obs, self.columns)


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
        """What errors of values are measured in."""
        return self.output.scale if isinstance(self.output, PopArt) else 1.0

    def absorb(self, batch: Samples) -> Tensor | float:
        """Learn the size of values from a batch's targets; no value changes by it, up to rounding.

        Gives the old unit over the new one, which the weights of the output layer were multiplied by.
        """
        return self.output.absorb(batch.target, batch.weight) if isinstance(self.output, PopArt) else 1.0


class Critic(Valued):
    """Observations to state values [B], with PopArt if asked for."""

    def __init__(self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None, popart: bool = False) -> None:
        super().__init__()
        self.encoder, features = trunk or encoder(spec.obs, net)
        self.output = value_layer(features, popart, net)

    def forward(self, obs: Obs) -> Tensor:
        return self.on(self.encoder(obs))


def value_layer(features: int, popart: bool, net: Net) -> nn.Module:
    """The last layer of a critic."""
    return PopArt(features, net=net) if popart else linear(features, 1, 1.0, net)


class PolicyAndCritic:
    """A policy and a critic that one loss trains; with `net.shared` both on one trunk, which a call passes once.

    It is no module: the learner holds `policy` and `critic` as its own. Optimisers count shared parameters once.
    """

    def __init__(self, spec: Spec, net: Net, popart: bool = False) -> None:
        self.shared, net = net.shared, replace(net, shared=False)
        trunk = encoder(spec.obs, net) if self.shared else None
        self.policy, self.critic = Policy(spec, net, trunk), Critic(spec, net, trunk, popart)

    def __call__(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Outputs of the action head [B, size] and values [B]."""
        if not self.shared:
            return self.policy(obs), self.critic(obs)
        features = self.policy.encoder(obs)
        return self.policy.on(features, obs), self.critic.on(features)


class Stream(nn.Module):
    """Features [..., F] through the last hidden layer of `net` to outputs [..., size]; every layer noisy if asked for.

    `noise` is what `draw` gives, as a tensor; without it noisy layers take their means.
    """

    def __init__(self, features: int, net: Net, size: int, noisy: Noise | None, sigma: float | None) -> None:
        super().__init__()
        widths = (features, *net.hidden[-1:], size)
        if noisy is None:
            gains = [None] * (len(widths) - 2) + [net.output_gain or 1.0]
            layers: list[Any] = [linear(*pair, gain, net) for pair, gain in zip(pairwise(widths), gains, strict=True)]
        elif net.output_gain is not None:
            raise UsageError("noisy layers begin as their paper says; leave net.output_gain at none")
        else:
            layers = [NoisyLinear(*pair, noisy, sigma) for pair in pairwise(widths)]
        self.linears = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norm for width in net.hidden[-1:] for norm in layer_norm(width, net))
        self.sizes = [] if noisy is None else [layer.size for layer in layers]
        self.activation = activation(net)
        self.last = len(layers) - 1

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        parts = None if noise is None else noise.split(self.sizes)
        for number, layer in enumerate(self.linears):
            if parts is None:
                own = layer._parameters  # attributes of a module are looked up slowly
                features = products.linear(features, own["weight"], own["bias"])  # type: ignore[arg-type]
            else:
                features = layer(features, parts[number])
            if number < self.last:
                features = self.activation(self.norms[number](features) if self.norms else features)
        return features

    def draw(self, generator: np.random.Generator) -> list[Array]:
        """Fresh noise for each noisy layer."""
        return [layer.draw(generator) for layer in self.linears if isinstance(layer, NoisyLinear)]


class QNetwork(nn.Module):
    """Observations to action values [B, A].

    `distribution` is what losses train: `atoms` numbers for each action, of which `expected` makes values. Subclasses
    give these two a meaning. With `dueling` they are V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9), with
    `noisy` the layers after the shared ones are `NoisyLinear`s. The last hidden layer of `net` belongs to the streams.
    """

    def __init__(
        self, spec: Spec, net: Net, dueling: bool = False, noisy: Noise | None = None, sigma: float | None = None,
        atoms: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        check_mask(spec)
        net.check_gaussian(free=False)
        self.actions, self.atoms = actions_of(spec.action), atoms
        self.encoder, self.features = encoder(spec.obs, replace(net, hidden=net.hidden[:-1]))
        self.advantage = Stream(self.features, net, self.actions * atoms, noisy, sigma)
        self.value = Stream(self.features, net, atoms, noisy, sigma) if dueling else None
        self.noisy = noisy is not None

    def forward(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        return masked(self.expected(self.distribution(obs, noise)), obs)

    def distribution(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        """[B, A, atoms]."""
        return self.heads(self.encoder(obs), noise)

    def expected(self, distribution: Tensor) -> Tensor:
        """Distributions [B, A, atoms] to their values [B, A]."""
        return distribution.squeeze(-1)

    def heads(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Features [..., F] to [..., A, atoms]."""
        mine = None if noise is None else noise[: sum(self.advantage.sizes)]
        advantage: Tensor = self.advantage(features, mine).unflatten(-1, (self.actions, self.atoms))
        if self.value is None:
            return advantage
        rest = None if noise is None else noise[sum(self.advantage.sizes) :]
        value: Tensor = self.value(features, rest).unsqueeze(-2)
        return value + advantage - advantage.mean(-2, keepdim=True)

    def draw(self, generator: np.random.Generator) -> Array:
        """Fresh noise for one use of the network, to be passed as a tensor."""
        streams = [self.advantage] if self.value is None else [self.advantage, self.value]
        return np.concatenate([part for stream in streams for part in stream.draw(generator)])


def actions_of(space: spaces.Space[Any]) -> int:
    """How many actions a Discrete space has; the callers have checked that it is one."""
    assert isinstance(space, spaces.Discrete)
    return int(space.n)
