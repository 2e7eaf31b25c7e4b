"""Mixers: the value of a team's joint action from the values of its agents' actions."""

from __future__ import annotations

from torch import Tensor, nn

import rlplug_core as rl


class Sum(nn.Module):
    """Q_tot is the sum of the agents' values (VDN, eq. 3)."""

    def forward(self, values: Tensor, obs: dict[str, Tensor]) -> Tensor:
        """Map values [B, A] of chosen actions and joint observations to Q_tot [B]."""
        return (values * obs["present"]).sum(1)


class Monotonic(nn.Module):
    """Q_tot rises with each agent's value; how fast depends on the state of the world (QMIX, section 4 and figure 2).

    Hypernetworks turn the state into a network with one hidden layer; all weights but the biases are positive.
    """

    def __init__(self, spec: rl.Spec, width: int) -> None:
        super().__init__()
        self.state = rl.JointState(spec)
        size = self.state.features
        self.hidden_weight = nn.Linear(size, spec.agents_per_world * width)
        self.hidden_bias = nn.Linear(size, width)
        self.output_weight = nn.Linear(size, width)
        self.output_bias = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, values: Tensor, obs: dict[str, Tensor]) -> Tensor:
        """Map values [B, A] of chosen actions and joint observations to Q_tot [B]."""
        state = self.state(obs)
        weight = self.hidden_weight(state).abs().unflatten(1, (values.shape[1], -1))
        hidden = ((values * obs["present"]).unsqueeze(2) * weight).sum(1) + self.hidden_bias(state)
        total = (nn.functional.elu(hidden) * self.output_weight(state).abs()).sum(1)
        mixed: Tensor = total + self.output_bias(state).squeeze(1)
        return mixed
