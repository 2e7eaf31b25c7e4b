"""Networks for continuous actions: a deterministic policy, Q(s, a), and several critics side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.nets import action_vectors, node
from rlplug_core.nets.action_vectors import NormalizedBeside
from rlplug_core.nets.by_rules import ByRules, why_not
from rlplug_core.nets.encoders import MLP, Concat, encoder, linear, observation_norm
from rlplug_core.nets.heads import check_bounded
from rlplug_core.nets.net import Net
from rlplug_core.nets.node import Node
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.nets.passes import Passes
from rlplug_core.types import Array, Obs, Spec


class DeterministicPolicy(nn.Module):
    """Observations to one action each [B, dims], in [-1, 1] by a tanh.

    Raises:
        UsageError: the action space is no Box with finite bounds.
    """

    def __init__(self, spec: Spec, net: Net, norm: ObservationNorm | None = None) -> None:
        super().__init__()
        check_bounded(spec.action)
        net.check_gaussian(free=False)
        self.shape = spec.action.shape or ()
        self.encoder, features = encoder(spec.obs, net, norm)
        self.outputs = linear(features, prod(self.shape), net.output_gain or 0.01, net)
        self.by_rules = ByRules(self.encoder, self.outputs, nn.Tanh())

    def why_not(self) -> str:
        """Return what keeps it from going by rules now, or nothing."""
        return self.by_rules.why_not()

    def forward(self, obs: Obs) -> Tensor:
        """Compute the greedy actions; by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations, as tensors; or one array [B, F].

        Returns:
            Actions [B, d] in [-1, 1].
        """
        if isinstance(obs, np.ndarray):
            actions: Tensor = self.by_rules(obs)
            return actions
        outputs: Tensor = self.outputs(self.encoder(obs))
        return outputs.tanh()


def beside(spec: Spec, net: Net, norm: ObservationNorm | None = None) -> tuple[nn.Module, int]:
    """Put observation and action side by side as vectors [B, F]: a module, called with both in a dictionary, and F.

    The observation is scaled with `net.normalize_obs`, then images go through convolutions, or all observations through
    `net.factory`. No hidden layer is passed.
    """
    vectors, features = _beside(spec, replace(net, hidden=(), normalize_obs=False))
    norm = norm or observation_norm(spec.obs, net)
    return (vectors if norm is None else NormalizedBeside(norm, vectors)), features


def _beside(spec: Spec, net: Net) -> tuple[nn.Module, int]:
    if net.factory is None:
        return encoder(spaces.Dict({"obs": spec.obs, "action": spec.action}), net)
    obs, features = encoder(spec.obs, net)
    action, numbers = encoder(
        spec.action, replace(net, factory=None, channels=(), kernels=(), strides=())
    )
    return Concat({"obs": obs, "action": action}), features + numbers


class ActionCritic(nn.Module):
    """Observations and actions to values [B], or with `atoms` to so many numbers [B, atoms] each."""

    def __init__(
        self, spec: Spec, net: Net, norm: ObservationNorm | None = None, *, atoms: int | None = None
    ) -> None:
        super().__init__()
        self.vectors, width = beside(spec, net, norm)
        self.layers = MLP(width, net)
        self.output = linear(self.layers.features, atoms or 1, 1.0, net)
        self.atoms = atoms
        self.by_rules = ByRules(self.layers, self.output)

    def why_not(self) -> str:
        """Return what keeps it from going by rules now, or nothing."""
        return action_vectors.why_not(self.vectors) or self.by_rules.why_not()

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute Q(s, a); by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Values [B], or with atoms [B, atoms].
        """
        if isinstance(obs, np.ndarray):
            values: Tensor = self.by_rules(action_vectors.side_by_side(self.vectors, obs, action))
        else:
            values = self.output(self.layers(self.vectors({"obs": obs, "action": action})))
        return values.squeeze(-1) if self.atoms is None else values


class Ensemble(nn.Module):
    """Networks that differ in their initial weights: the same inputs to the outputs of all [n, B, ...].

    It goes by rules where its members do. On a CPU a loop costs what one batched matrix product does, and a member can
    be asked alone: `ensemble[0]`.
    """

    def __init__(self, make: Callable[[], nn.Module], count: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(make() for _ in range(count))

    def __getitem__(self, number: int) -> nn.Module:
        return self.members[number]

    def why_not(self) -> str:
        """Return what keeps them from going by rules now, or nothing."""
        return next(filter(None, map(why_not, self.members)), "")

    def forward(self, *inputs: Any) -> Tensor:
        outputs: Tensor = node.stacked([member(*inputs) for member in self.members])
        return outputs

    def lowest(self, *inputs: Any) -> Tensor:
        """Compute the lowest of all members' outputs (Fujimoto et al., 2018, arXiv:1802.09477, eq. 10).

        Args:
            inputs: [B, ...] each, as the members take them.

        Returns:
            [B, ...], as one member gives.
        """
        values: Any = self(*inputs)
        least: Tensor = (
            np.minimum.reduce(values) if isinstance(values, np.ndarray) else values.amin(0)
        )
        return least


class ActionCritics(Ensemble):
    """Critics that are `ActionCritic`s: where observation and action need only be put side by side, once for all."""

    def __init__(self, make: Callable[[], nn.Module], count: int) -> None:
        super().__init__(make, count)
        critics = [member for member in self.members if isinstance(member, ActionCritic)]
        first = critics[0]
        self.apart = any(
            True for _ in first.vectors.parameters()
        )  # each has convolutions of its own
        self.atoms = first.atoms
        self.passes = Passes([critic.by_rules for critic in critics])

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute Q(s, a) by all n critics; by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Values [n, B], or with atoms [n, B, atoms].
        """
        values: Any = (
            self._by_rules(obs, action)
            if isinstance(obs, np.ndarray)
            else torch.stack(self._outputs(obs, action))
        )
        found: Tensor = values.squeeze(-1) if self.atoms is None else values
        return found

    def pooled(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute the atoms of all n critics side by side; by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Numbers [B, n * atoms].
        """
        if isinstance(obs, np.ndarray):
            pooled: Tensor = node.pooled(self._by_rules(obs, action))  # type: ignore[assignment]  # on arrays a node
            return pooled
        return torch.cat(self._outputs(obs, action), 1)

    def _by_rules(self, obs: Array, action: Any) -> Array | Node:
        """Compute the outputs [n, B, 1] or [n, B, atoms] of all critics."""
        members: Any = self.members
        seen = action_vectors.side_by_side(members[0].vectors, obs, action)
        if torch.get_num_threads() > 1 and self.passes.pay(
            seen.value if isinstance(seen, Node) else seen
        ):
            found: Array | Node = self.passes(seen)
            return found
        outputs: Array | Node = node.stacked([member.by_rules(seen) for member in members])
        return outputs

    def _outputs(self, obs: Obs, action: Tensor) -> list[Tensor]:
        """Compute the outputs of each critic, [B, 1] or [B, atoms]."""
        members: Any = self.members
        if self.apart:
            every = [member.vectors({"obs": obs, "action": action}) for member in members]
        else:
            every = [members[0].vectors({"obs": obs, "action": action})] * len(members)
        return [
            member.output(member.layers(seen)) for member, seen in zip(members, every, strict=True)
        ]
