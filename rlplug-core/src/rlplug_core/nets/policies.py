"""Networks that algorithms compose: policy, critic, Q-values, each from the spaces and a `Net`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gymnasium.spaces as spaces
import numpy as np
from torch import Tensor, nn

from rlplug_core.batches import Samples
from rlplug_core.nets.actions import parts
from rlplug_core.nets.by_rules import ByRules
from rlplug_core.nets.encoders import encoder, initialize_outputs, linear, observation_norm
from rlplug_core.nets.heads import Categorical, Gaussian, Head, HeadFactory, Product, check_mask, head, masked
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.nets.popart import PopArt
from rlplug_core.types import Obs, Spec


class PolicyNetwork(nn.Module):
    """Observations to the outputs [B, size] of an action head, illegal actions masked.

    `make` builds the head; without it that is `head`, with the Gaussian that `net` says.
    """

    columns: Tensor | None

    def __init__(
        self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None, make: HeadFactory | None = None,
        norm: ObservationNorm | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_mask(spec)
        net.check_gaussian(make is None and any(isinstance(part.space, spaces.Box) for part in parts(spec.action)))
        make = make or partial(head, std=net.std, squash=net.squash)
        self.encoder, features = trunk or encoder(spec.obs, net, norm)
        self.head: Head
        self.head, self.outputs = make(spec.action, features)
        initialize_outputs(self.outputs, net)
        columns = self.head.columns if isinstance(self.head, Product) else None
        self.register_buffer("columns", columns, persistent=False)
        self.by_rules = ByRules(self.encoder, self.outputs)

    def forward(self, obs: Obs) -> Tensor:
        """Compute what the head reads as distributions; by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations, as tensors; or one array [B, F].

        Returns:
            Outputs [B, size]; illegal actions have the logit `ILLEGAL`.
        """
        if isinstance(obs, np.ndarray):
            outputs: Tensor = self.by_rules(obs)
            return outputs
        outputs = self.outputs(self.encoder(obs))
        return masked(outputs, obs, self.columns) if isinstance(obs, dict) else outputs

    def why_not(self) -> str:
        """Return what keeps it from going by rules now, or nothing."""
        if type(self) is not PolicyNetwork:
            return f"{type(self).__name__} has no rule"
        if type(self.head) not in (Categorical, Gaussian):
            return f"{type(self.head).__name__} has no rule"
        return self.by_rules.why_not()

    def on(self, features: Tensor, obs: Obs) -> Tensor:
        """Compute outputs from what the encoder made of observations.

        Args:
            features: [B, F].
            obs: [B, ...] the observations, which may carry an action mask.

        Returns:
            Outputs [B, size]; illegal actions have the logit `ILLEGAL`.
        """
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
        """Return the unit of value errors."""
        return self.output.scale if isinstance(self.output, PopArt) else 1.0

    def absorb(self, batch: Samples) -> Tensor | float:
        """Learn the size of values from a batch's targets; no value changes by it, up to rounding.

        Gives the old unit over the new one, which the weights of the output layer were multiplied by.
        """
        return self.output.absorb(batch.target, batch.weight) if isinstance(self.output, PopArt) else 1.0


class Critic(Valued):
    """Observations to state values [B], with PopArt if asked for."""

    def __init__(
        self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None, popart: bool = False,
        norm: ObservationNorm | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder, features = trunk or encoder(spec.obs, net, norm)
        self.output = value_layer(features, popart, net)
        self.by_rules = ByRules(self.encoder, self.output)

    def forward(self, obs: Obs) -> Tensor:
        """Compute V(s); by rules where `obs` is an array.

        Args:
            obs: [B, ...] observations, as tensors; or one array [B, F].

        Returns:
            Values [B].
        """
        if isinstance(obs, np.ndarray):
            values: Tensor = self.by_rules(obs).squeeze(-1)
            return values
        return self.on(self.encoder(obs))

    def why_not(self) -> str:
        """Return what keeps it from going by rules now, or nothing."""
        return self.by_rules.why_not() if type(self) is Critic else f"{type(self).__name__} has no rule"


def value_layer(features: int, popart: bool, net: Net) -> nn.Module:
    """The last layer of a critic."""
    return PopArt(features, net=net) if popart else linear(features, 1, 1.0, net)


class PolicyAndCritic:
    """A policy and a critic that one loss trains; with `net.shared` both on one trunk, which a call passes once.

    It is no module: the learner holds `policy` and `critic` as its own. Optimizers count shared parameters once.
    """

    def __init__(self, spec: Spec, net: Net, popart: bool = False) -> None:
        self.shared, net = net.shared, replace(net, shared=False)
        norm = observation_norm(spec.obs, net)
        trunk = encoder(spec.obs, net, norm) if self.shared else None
        self.policy = PolicyNetwork(spec, net, trunk, norm=norm)
        self.critic = Critic(spec, net, trunk, popart, norm)

    def __call__(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Outputs of the action head [B, size] and values [B]."""
        if not self.shared:
            return self.policy(obs), self.critic(obs)
        features = self.policy.encoder(obs)
        return self.policy.on(features, obs), self.critic.on(features)

    def why_not(self) -> str:
        """Return what keeps both from going by rules now, or nothing."""
        return "a shared trunk has no rule" if self.shared else self.policy.why_not() or self.critic.why_not()
