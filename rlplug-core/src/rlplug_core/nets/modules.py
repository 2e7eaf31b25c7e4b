"""Networks that algorithms compose: policy, critic, Q-values, each from the spaces and a `Net`."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
from torch import Tensor, nn

from rlplug_core.nets.encoders import encoder, linear
from rlplug_core.nets.heads import Head, HeadFactory, head, masked
from rlplug_core.nets.net import Net
from rlplug_core.types import Obs, Spec


class Policy(nn.Module):
    """Observations to the outputs [B, size] of an action head, illegal actions masked; `make` builds the head."""

    def __init__(
        self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None, make: HeadFactory = head
    ) -> None:
        super().__init__()
        self.encoder, features = trunk or encoder(spec.obs, net)
        self.head: Head
        self.head, self.outputs = make(spec.action, features)

    def forward(self, obs: Obs) -> Tensor:
        return masked(self.outputs(self.encoder(obs)), obs)


class Critic(nn.Module):
    """Observations to state values [B]."""

    def __init__(self, spec: Spec, net: Net, trunk: tuple[nn.Module, int] | None = None) -> None:
        super().__init__()
        self.encoder, features = trunk or encoder(spec.obs, net)
        self.output = linear(features, 1, gain=1.0)

    def forward(self, obs: Obs) -> Tensor:
        value: Tensor = self.output(self.encoder(obs))
        return value.squeeze(-1)


class QNetwork(nn.Module):
    """Observations to action values [B, A]; dueling: Q = V + A - mean A (Wang et al., 2016, arXiv:1511.06581)."""

    def __init__(self, spec: Spec, net: Net, dueling: bool = False) -> None:
        super().__init__()
        self.encoder, features = encoder(spec.obs, net)
        self.advantage = linear(features, actions_of(spec.action), gain=1.0)
        self.value = linear(features, 1, gain=1.0) if dueling else None

    def forward(self, obs: Obs) -> Tensor:
        features = self.encoder(obs)
        values: Tensor = self.advantage(features)
        if self.value is not None:
            values = self.value(features) + values - values.mean(-1, keepdim=True)
        return masked(values, obs)


def actions_of(space: spaces.Space[Any]) -> int:
    """How many actions a Discrete space has; the callers have checked that it is one."""
    assert isinstance(space, spaces.Discrete)
    return int(space.n)
