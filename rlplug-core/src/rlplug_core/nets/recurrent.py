"""Networks that remember: a recurrent cell which forgets where an episode opens, a policy and a critic on top of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork, Valued, value_layer
from rlplug_core.types import Array, Obs, Spec

#: Names of the recurrent cells.
CellName = Literal["gru", "lstm"]
#: What is remembered, by the name of its part; "h" is what other layers see. [N, units], or [T * N, units] unrolled.
Remembered: TypeAlias = dict[str, Tensor]


class Memory(nn.Module):
    """The base of memories: features in, what is remembered out."""

    #: What is remembered between steps, "h" first.
    parts: tuple[str, ...] = ("h",)
    cell: nn.RNNCellBase

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def initial(self, num_envs: int) -> dict[str, Array]:
        """Nothing, for so many rows."""
        return {part: np.zeros((num_envs, self.units), dtype=np.float32) for part in self.parts}

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        """Return the recurrent state [N, units] after features [N, F]."""
        raise NotImplementedError

    def unroll(
        self, features: Tensor, is_first: Tensor, before: Remembered, valid: Tensor | None = None
    ) -> Remembered:  # fmt: skip
        """Return the recurrent state after each step, [T * N, units].

        Args:
            features: [T * N, F], step by step, N rows each.
            is_first: [T * N] bool, where an episode opens, so that what was before it is forgotten.
            before: [N, units] each, what is remembered before the first step.
            valid: [T * N] bool, where a step is one; others leave what is remembered as it is. None for everywhere.
        """
        num_envs, steps = before["h"].shape[0], []
        opens = is_first.unsqueeze(1).split(num_envs)
        counts = [None] * len(opens) if valid is None else valid.unsqueeze(1).split(num_envs)
        for seen, forget, count in zip(features.split(num_envs), opens, counts, strict=True):
            kept = {part: before[part].masked_fill(forget, 0.0) for part in self.parts}
            after = self.step(seen, kept)
            before = after if count is None else {part: after[part].where(count, kept[part]) for part in self.parts}
            steps.append(before)
        return {part: torch.cat([step[part] for step in steps]) for part in self.parts}


class GRU(Memory):
    """A gated recurrent unit (Cho et al., 2014, arXiv:1406.1078)."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__(units)
        self.cell = begun(nn.GRUCell(features, units))

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        return {"h": self.cell(features, before["h"])}


class LSTM(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with forget gates."""

    parts = ("h", "c")

    def __init__(self, features: int, units: int) -> None:
        super().__init__(units)
        self.cell = begun(nn.LSTMCell(features, units))

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        output, cell = self.cell(features, (before["h"], before["c"]))
        return {"h": output, "c": cell}


#: The memories that a config can name.
CELLS: dict[str, type[GRU | LSTM]] = {"gru": GRU, "lstm": LSTM}


def begun(cell: nn.RNNCellBase) -> nn.RNNCellBase:
    """The cell with orthogonal weights and zero biases, but for 1 at the gate that keeps: it begins by remembering.

    Jozefowicz et al. (2015) measure how much it matters. In both of torch's cells the second block is that gate's:
    the LSTM's forget gate, the GRU's update gate.
    """
    for name, parameter in cell.named_parameters():
        if name.startswith("weight"):
            nn.init.orthogonal_(parameter)
        else:
            nn.init.zeros_(parameter)
    with torch.no_grad():
        cell.bias_ih[cell.hidden_size : 2 * cell.hidden_size] = 1
    return cell


class RecurrentPolicy(nn.Module):
    """Observations and a memory to the outputs of an action head, illegal actions masked.

    Observations pass the encoder of `net`, then a memory of `units`. Rows [T * N] are step after step, N of each; one
    step is enough to act.
    """

    def __init__(self, spec: Spec, net: Net, cell: CellName, units: int) -> None:
        super().__init__()
        self.encoder, features = encoder(spec.obs, replace(net, shared=False))
        self.memory = CELLS[cell](features, units)
        self.policy = PolicyNetwork(spec, net, (nn.Identity(), units))
        self.head = self.policy.head

    def remember(self, obs: Obs, is_first: Tensor, before: Remembered, valid: Tensor | None = None) -> Remembered:
        """Return the recurrent state after each observation [T * N, ...]; the other arguments as in `Memory.unroll`."""
        return self.memory.unroll(self.encoder(obs), is_first, before, valid)

    def on(self, memory: Remembered, obs: Obs) -> Tensor:
        """The outputs [B, size] from what is remembered after `obs`."""
        return self.policy.on(memory["h"], obs)


class RecurrentCritic(Valued):
    """Maps recurrent states of a policy to state values [B], with PopArt on request."""

    def __init__(self, units: int, net: Net, popart: bool = False) -> None:
        super().__init__()
        self.output = value_layer(units, popart, net)

    def forward(self, memory: Remembered) -> Tensor:
        return self.on(memory["h"])


class RecurrentPolicyAndCritic:
    """A policy with memory and a critic on the same one: who acts carries one memory and needs no critic.

    As `PolicyAndCritic` it is no module: the learner holds `policy` and `critic` as its own.
    """

    def __init__(self, spec: Spec, net: Net, cell: CellName, units: int, popart: bool = False) -> None:
        self.policy, self.critic = RecurrentPolicy(spec, net, cell, units), RecurrentCritic(units, net, popart)

    def __call__(
        self, obs: Obs, is_first: Tensor, before: Remembered, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Outputs of the action head [T * N, size] and values [T * N]; arguments as in `RecurrentPolicy.remember`."""
        memory = self.policy.remember(obs, is_first, before, valid)
        return self.policy.on(memory, obs), self.critic(memory)

    def why_not(self) -> str:
        """Say why they do not go by rules."""
        return "a recurrent cell has no rule"
