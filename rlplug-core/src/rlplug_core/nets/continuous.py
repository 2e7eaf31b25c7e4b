"""Networks for continuous actions: a deterministic policy, Q(s, a), and several critics side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import network, overridable
from rlplug_core.batches import Transitions
from rlplug_core.nets.custom import reads_actions
from rlplug_core.nets.encoders import MLP, Concat, encoder, observation_norm
from rlplug_core.nets.former_names import former_method
from rlplug_core.nets.heads import check_bounded
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.keys import KeyVectors, select_space
from rlplug_core.nets.memory_trunk import MemoryTrunk, Trunk
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.types import Obs, Spec


class DeterministicPolicy(nn.Module):
    """Maps each observation to one action [B, dims], in [-1, 1] by a tanh.

    Raises:
        UsageError: the action space is not a Box with finite bounds.
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        norm: ObservationNorm | None = None,
    ) -> None:
        super().__init__()
        #: The policy's own memory, if it has one; `forward` takes its features.
        self.trunk: MemoryTrunk | None = None
        check_bounded(spec.action)
        net.check_gaussian(free=False)
        self.shape = spec.action.shape or ()
        self.encoder, features = encoder(spec.obs, net, norm)
        self.outputs = linear(features, prod(self.shape), net.output_gain or 0.01, net)

    @network
    def forward(self, obs: Obs) -> Tensor:
        """Compute the greedy actions.

        Args:
            obs: [B, ...] observations.

        Returns:
            Actions [B, d] in [-1, 1].
        """
        outputs: Tensor = self.outputs(self.encoder(obs))
        return outputs.tanh()


def action_encoder(
    spec: Spec,
    net: Net,
    norm: ObservationNorm | None = None,
) -> tuple[nn.Module, int]:
    """Return a module that turns a dictionary with observation and action into vectors [B, F], and the number F.

    The observation is scaled with `net.normalize_obs`, then images go through convolutions, or all observations through
    `net.factory`, with the action if the factory takes actions. There are no hidden layers. With `net.obs` the
    observation is these keys of a Dict.
    """
    norm = norm or observation_norm(spec.obs, net)
    part = replace(spec, obs=select_space(spec.obs, net.obs))
    inner = replace(net.part(slice(0)), normalize_obs=False, obs=())
    vectors, features = _vectors_module(part, inner, scales=norm is None)
    vectors = vectors if norm is None else NormalizedVectors(norm, vectors)
    return (KeyVectors(net.obs, vectors) if net.obs else vectors), features


def _vectors_module(
    spec: Spec,
    net: Net,
    scales: bool,
) -> tuple[nn.Module, int]:
    if net.factory is None or reads_actions(net.factory):
        return encoder(spaces.Dict({"obs": spec.obs, "action": spec.action}), net, scales=scales)
    obs, obs_features = encoder(spec.obs, net)
    action, action_size = encoder(spec.action, net.default_encoder())
    return Concat({"obs": obs, "action": action}), obs_features + action_size


class NormalizedVectors(nn.Module):
    """Concatenates observation and action; the observation is normalized first."""

    def __init__(self, norm: ObservationNorm, vectors: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.vectors = vectors

    def forward(self, both: dict[str, Obs]) -> Tensor:
        return self.vectors({**both, "obs": self.norm(both["obs"])})


class ActionCritic(nn.Module):
    """Maps observations and actions to values [B], or with `atoms` to numbers [B, atoms]."""

    def __init__(
        self,
        spec: Spec,
        net: Net,
        norm: ObservationNorm | None = None,
        *,
        atoms: int | None = None,
    ) -> None:
        super().__init__()
        self.vectors, width = action_encoder(spec, net, norm)
        self.layers = MLP(width, net)
        self.output = linear(self.layers.features, atoms or 1, 1.0, net)
        self.atoms = atoms

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute Q(s, a).

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Values [B], or with atoms [B, atoms].
        """
        values = self.from_features(action_features(self.vectors, obs, action))
        return values.squeeze(-1) if self.atoms is None else values

    @network
    def from_features(self, features: Tensor) -> Tensor:
        """Compute outputs from the vectors of observation and action.

        Args:
            features: [B, F].

        Returns:
            Outputs [B, 1], or with atoms [B, atoms].
        """
        return self.output(self.layers(features))

    on = former_method("on", "from_features")


class Ensemble(nn.Module):
    """Networks that differ in their initial weights only; outputs are [n, B, ...].

    On a CPU a loop over members costs as much as a batched matrix product. `ensemble[0]` is one member.
    """

    def __init__(self, make: Callable[[], nn.Module], count: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(make() for _ in range(count))

    def __getitem__(self, number: int) -> nn.Module:
        return self.members[number]

    def forward(self, *inputs: Obs) -> Tensor:
        """Compute the outputs of all members.

        Args:
            inputs: [B, ...] each, as the members take them.

        Returns:
            [n, B, ...].
        """
        return torch.stack([member(*inputs) for member in self.members])

    def lowest(self, *inputs: Obs) -> Tensor:
        """Compute the lowest of all members' outputs (Fujimoto et al., 2018, arXiv:1802.09477, eq. 10).

        Args:
            inputs: [B, ...] each, as the members take them.

        Returns:
            [B, ...], as one member gives.
        """
        values: Tensor = self(*inputs)
        return values.amin(0)


class ActionCritics(Ensemble):
    """Several `ActionCritic`s. Without convolutions they share the vector of observation and action.

    With a `trunk` all of them read its features, and train it.
    """

    trunk: Trunk | None

    def __init__(
        self,
        make: Callable[[], nn.Module],
        count: int,
        trunk: Trunk | None = None,
    ) -> None:
        super().__init__(make, count)
        self.trunk = trunk
        first = self.members[0]
        assert isinstance(first, ActionCritic)
        #: Whether each critic has its own encoder with parameters, such as convolutions.
        self.separate_encoders = any(True for _ in first.vectors.parameters())
        self.atoms = first.atoms

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute Q(s, a) by all n critics.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Values [n, B], or with atoms [n, B, atoms].
        """
        values = critic_outputs(self.members, *self._features(obs, action))
        return values.squeeze(-1) if self.atoms is None else values

    def pooled(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute the atoms of all n critics side by side.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Numbers [B, n * atoms].
        """
        return pooled(critic_outputs(self.members, *self._features(obs, action)))

    def obs(self, batch: Transitions) -> Obs:
        """Return the observations [B, ...] that critics and policy read for a batch: the trunk's features, if any."""
        return batch.obs if self.trunk is None else self.trunk.obs(batch)

    def next_obs(self, batch: Transitions) -> Obs:
        """Return the next observations [B, ...] that critics and policy read for a batch, as `obs` does."""
        return batch.next_obs if self.trunk is None else self.trunk.next_obs(batch)

    def _features(self, obs: Obs, action: Tensor) -> list[Tensor]:
        """Compute the features of each critic."""
        members: Any = self.members
        if self.separate_encoders:
            return [action_features(member.vectors, obs, action) for member in members]
        return [action_features(members[0].vectors, obs, action)] * len(members)


@overridable
def critic_outputs(critics: Any, *features: Tensor) -> Tensor:
    """Compute the outputs [n, B, O] of n critics from the features [B, F] of each."""
    return torch.stack(
        [critic.from_features(each) for critic, each in zip(critics, features, strict=True)]
    )


@overridable
def pooled(outputs: Tensor) -> Tensor:
    """Put the outputs [n, B, O] of n networks side by side, [B, n * O]."""
    return torch.cat(list(outputs), 1)


@overridable
def action_features(vectors: nn.Module, obs: Obs, action: Tensor) -> Tensor:
    """Put observation and action side by side.

    Args:
        vectors: as `action_encoder` makes it.
        obs: [B, ...] observations.
        action: [B, ...] canonical actions.

    Returns:
        Vectors [B, F].
    """
    return vectors({"obs": obs, "action": action})
