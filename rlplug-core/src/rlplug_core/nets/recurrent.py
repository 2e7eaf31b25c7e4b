"""Recurrent networks: a cell that resets at the start of an episode, with a policy and a critic on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import kernel
from rlplug_core.batches import Transitions
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.heads import masked
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork, ValueFunction, value_layer
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Array, Obs, Spec, tree_map

#: A cell: features [N, F] and each part of the old state [N, H] to each part of the new state.
Step: TypeAlias = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
#: Names of the recurrent cells.
CellName = Literal["gru", "lstm"]
#: The memory by part; other layers read "h". [N, units], or [T * N, units] unrolled.
Remembered: TypeAlias = dict[str, Tensor]


def step_by_step(
    step: Step, features: Tensor, is_first: Tensor, before: Sequence[Tensor], valid: Tensor | None
) -> tuple[Tensor, ...]:
    """Return each part of the memory after each step, [T * N, H], by `step`; arguments as of `Memory.unroll`."""
    rows = before[0].shape[0]
    steps = []
    opens = is_first.unsqueeze(1).split(rows)
    counts = [None] * len(opens) if valid is None else valid.unsqueeze(1).split(rows)
    for seen, forget, count in zip(features.split(rows), opens, counts, strict=True):
        kept = [part.masked_fill(forget, 0.0) for part in before]
        before = step(seen, kept)
        if count is not None:
            before = [new.where(count, old) for new, old in zip(before, kept, strict=True)]
        steps.append(before)
    return tuple(torch.cat(parts) for parts in zip(*steps, strict=True))


@kernel
def unroll(
    cell: nn.RNNCellBase,
    step: Step,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> Sequence[Tensor]:
    """Return each part of a cell's state after each step, [T * N, H]; arguments as in `Memory.unroll`."""
    return step_by_step(step, features, is_first, before, valid)


class Memory(nn.Module):
    """The base of memories: features in, memory out."""

    #: The parts of the memory, "h" first.
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
    ) -> Remembered:
        """Return the recurrent state after each step, [T * N, units].

        Args:
            features: [T * N, F], step by step, N rows each.
            is_first: [T * N] bool, the first step of an episode; the memory is reset there.
            before: [N, units] each, the memory before the first step.
            valid: [T * N] bool, real steps; others do not change the memory. None means all are valid.
        """
        parts = [before[part] for part in self.parts]
        steps = unroll(
            self.cell, self._step, features, is_first=is_first, before=parts, valid=valid
        )
        return dict(zip(self.parts, steps, strict=True))

    def _step(self, features: Tensor, kept: Sequence[Tensor]) -> Sequence[Tensor]:
        return list(self.step(features, dict(zip(self.parts, kept, strict=True))).values())


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
    """Make the cell with orthogonal weights and zero biases, except 1 at the gate that keeps the memory.

    Jozefowicz et al. (2015) measure its effect. In both of torch's cells it is the second block: the LSTM's forget
    gate, the GRU's update gate.
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

    def remember(
        self, obs: Obs, is_first: Tensor, before: Remembered, valid: Tensor | None = None
    ) -> Remembered:
        """Return the recurrent state after each observation [T * N, ...]; the other arguments as in `Memory.unroll`."""
        return self.memory.unroll(self.encoder(obs), is_first, before, valid)

    def on(self, memory: Remembered, obs: Obs) -> Tensor:
        """Compute outputs [B, size] from the memory after `obs`."""
        return self.policy.on(memory["h"], obs)


class RecurrentCritic(ValueFunction):
    """Maps recurrent states of a policy to state values [B], with PopArt on request."""

    def __init__(self, units: int, net: Net, popart: bool = False) -> None:
        super().__init__()
        self.output = value_layer(units, popart, net)

    def normalized(self, memory: Remembered) -> Tensor:
        return self.on(memory["h"])


class RecurrentPolicyAndCritic:
    """A policy with memory and a critic on the same memory: acting carries one memory and needs no critic.

    Like `PolicyAndCritic` it is not a module: the learner holds `policy` and `critic` itself.
    """

    def __init__(
        self, spec: Spec, net: Net, cell: CellName, units: int, popart: bool = False
    ) -> None:
        self.policy = RecurrentPolicy(spec, net, cell, units)
        self.critic = RecurrentCritic(units, net, popart)

    def __call__(
        self, obs: Obs, is_first: Tensor, before: Remembered, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute outputs [T * N, size] and normalized values [T * N]; arguments as in `RecurrentPolicy.remember`."""
        memory = self.policy.remember(obs, is_first, before, valid)
        return self.policy.on(memory, obs), self.critic.normalized(memory)


class RecurrentQ(nn.Module):
    """Observations and a memory to action values [B, A].

    The last hidden layer of `net` is after the memory of `units`, in two streams with `dueling`; the others are before
    it. Sequences are ordered by step: B rows of each of T steps, as [T * B].
    """

    def __init__(
        self, spec: Spec, net: Net, cell: CellName, units: int, dueling: bool = False
    ) -> None:
        super().__init__()
        self.encoder, features = encoder(spec.obs, replace(net, hidden=net.hidden[:-1]))
        self.memory = CELLS[cell](features, units)
        self.q_network = QNetwork(spec, net, dueling, trunk=(nn.Identity(), units))

    def remember(
        self, obs: Obs, is_first: Tensor, before: Remembered, valid: Tensor | None = None
    ) -> Remembered:
        """Unroll the memory along sequences.

        Args:
            obs: [T * B, ...] observations.
            is_first, before, valid: as in `Memory.unroll`.

        Returns:
            The recurrent state after each observation, [T * B, units] each.
        """
        return self.memory.unroll(self.encoder(obs), is_first, before, valid)

    def on(self, memory: Remembered, obs: Obs) -> Tensor:
        """Compute action values from the memory.

        Args:
            memory: [B, units] each, after `obs`.
            obs: [B, ...] observations, which may carry an action mask.

        Returns:
            Action values [B, A]; those of illegal actions are `ILLEGAL`.
        """
        return masked(self.q_network.heads(memory["h"]).squeeze(-1), obs)

    def along(self, batch: Transitions, burn_in: int) -> Remembered:
        """Return the recurrent state after each step of sequences, starting from the stored one.

        Args:
            batch: T steps of B sequences, as `SequenceReplay` gives them.
            burn_in: first steps, without a gradient (Kapturowski et al., 2019, section 3).
        """
        rows = burn_in * len(batch.recurrent_state["h"])
        before = batch.recurrent_state
        is_first = batch.extras["is_first"]
        valid = batch.extras["valid"]
        if not burn_in:
            return self.remember(batch.obs, is_first, before, valid)
        early = tree_map(lambda one: one[:rows], batch.obs)
        late = tree_map(lambda one: one[rows:], batch.obs)
        with torch.no_grad():
            begun = self.remember(early, is_first[:rows], before, valid[:rows])
        newest = {part: begun[part][-len(before["h"]) :] for part in begun}
        rest = self.remember(late, is_first[rows:], newest, valid[rows:])
        return {part: torch.cat([begun[part], rest[part]]) for part in begun}

    def after(self, batch: Transitions, memory: Remembered) -> Tensor:
        """Return the action values [T * B, A] at the end of each step's n-step window.

        Args:
            batch: as in `along`.
            memory: the result of `along`.
        """
        count = len(batch.recurrent_state["h"])
        place = torch.arange(len(batch.weight), device=batch.weight.device)
        last = len(place) - count + place % count  # of each sequence
        at = (place + count * batch.extras["later"]).minimum(last)
        before = {part: memory[part].index_select(0, at) for part in memory}
        return self.on(self.memory.step(self.encoder(batch.next_obs), before), batch.next_obs)
