"""The stochastic dueling network of ACER for continuous actions (Wang et al., 2017, arXiv:1611.01224, section 5.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlplug_core.nets.encoders import MLP, encoder
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.nets.policies import Critic
from rlplug_core.types import Obs, Spec


class StochasticDueling(nn.Module):
    """State values and advantages on one trunk: Q(x, a) = `value(x)` + `advantage(x, a, others)`."""

    def __init__(
        self,
        spec: Spec,
        net: Net,
        norm: ObservationNorm | None = None,
    ) -> None:
        super().__init__()
        trunk = encoder(spec.obs, net, norm)
        self.value = Critic(spec, net, trunk)
        self.advantage = Dueling(trunk, int(torch.Size(spec.action.shape or ()).numel()), net)


class Dueling(nn.Module):
    """A(x, a) minus its mean over drawn actions; with V(x) added it is the Q-value of the network (eq. 13)."""

    def __init__(
        self,
        trunk: tuple[nn.Module, int],
        dims: int,
        net: Net,
    ) -> None:
        super().__init__()
        self.encoder, features = trunk
        self.hidden = MLP(features + dims, net)
        self.output = linear(self.hidden.features, 1, 1.0, net)

    def forward(self, inputs: dict[str, Obs]) -> Tensor:
        """Compute advantages [B] from `obs`, `action` [B, d] and `others` [B, n, d], the drawn actions."""
        features = self.encoder(inputs["obs"])
        others = inputs["others"]
        actions = torch.cat([inputs["action"].reshape(len(others), 1, -1), others], 1)
        repeated = features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        joined = torch.cat([repeated, actions], -1).flatten(0, 1)
        values = self.output(self.hidden(joined)).view(actions.shape[:2])
        return values[:, 0] - values[:, 1:].mean(1)
