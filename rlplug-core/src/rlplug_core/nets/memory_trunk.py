"""Trunks: modules that make the inputs of networks from a batch of replay, with or without a memory."""

from __future__ import annotations

from dataclasses import replace

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.batches import Transitions, to_tensors
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.net import CriticNet, Net
from rlplug_core.nets.recurrent import Remembered, make_memory
from rlplug_core.types import Obs, Spec, tree_map

#: The default number of steps at the start of a sequence that only compute the memory.
BURN_IN = 10


class MemoryTrunk(nn.Module):
    """Maps the observations of sequences to the features of a memory, for T steps of B sequences as [T * B].

    All hidden layers of `net` except the last one are before the memory. The last one belongs to the networks that read
    the features.

    Attributes:
        spec: the spec of the networks that read the features: their observations are features [units].
        net, critic_net: the options of the layers after the memory, for the policy and for critics.
        burn_in: the number of first steps of a sequence that have no gradient.
        stored: whether sequences start with the state of the actor, which the buffer stored, or with an empty memory
            (Kapturowski et al., 2019, section 3).
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        memory: str,
        burn_in: int = 0,
        stored: bool = True,
    ) -> None:
        super().__init__()
        self.encoder, features = encoder(spec.obs, net.part(slice(-1)))
        self.memory = make_memory(memory, features)
        self.burn_in = burn_in
        self.stored = stored
        self.spec = replace(spec, obs=spaces.Box(-np.inf, np.inf, (self.memory.units,)))
        self.net = layers_after(net)
        self.critic_net = self.net

    def remember(
        self,
        obs: Obs,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> Remembered:
        """Unroll the memory along sequences.

        Args:
            obs: [T * B, ...] observations.
            is_first, before, valid: as in `Memory.unroll`.

        Returns:
            The recurrent state after each observation, [T * B, ...] each.
        """
        return self.memory.unroll(self.encoder(obs), is_first, before, valid)

    def along(self, batch: Transitions, burn_in: int) -> Remembered:
        """Return the recurrent state after each step of sequences, starting from the stored or the empty one.

        Args:
            batch: T steps of B sequences, as `SequenceReplay` gives them.
            burn_in: the number of first steps without a gradient (Kapturowski et al., 2019, section 3).
        """
        count = len(batch.index)
        rows = burn_in * count
        before = batch.recurrent_state
        if not self.stored:
            before = to_tensors(self.memory.initial(count), batch.weight.device)
        is_first = batch.extras["is_first"]
        valid = batch.extras["valid"]
        if not burn_in:
            return self.remember(batch.obs, is_first, before, valid)
        early = tree_map(lambda array: array[:rows], batch.obs)
        late = tree_map(lambda array: array[rows:], batch.obs)
        with torch.no_grad():
            burn_in_memory = self.remember(early, is_first[:rows], before, valid[:rows])
        newest = {part: burn_in_memory[part][-count:] for part in burn_in_memory}
        rest = self.remember(late, is_first[rows:], newest, valid[rows:])
        return {part: torch.cat([burn_in_memory[part], rest[part]]) for part in burn_in_memory}

    def following(self, batch: Transitions, memory: Remembered) -> Remembered:
        """Return the recurrent state [T * B, ...] after the end of each step's n-step window.

        Args:
            batch: as in `along`.
            memory: the result of `along`.
        """
        count = len(batch.index)
        row = torch.arange(len(batch.weight), device=batch.weight.device)
        last_row = len(row) - count + row % count  # of the same sequence
        # `later` is the number of steps until the end of the window.
        window_end = (row + count * batch.extras["later"]).minimum(last_row)
        before = {part: memory[part].index_select(0, window_end) for part in memory}
        return self.memory.step(self.encoder(batch.next_obs), before)

    def obs(self, batch: Transitions) -> Obs:
        """Return the features [T * B, units] of each step of sequences; the burn-in has no gradient."""
        return self.along(batch, self.burn_in)["h"]

    def next_obs(self, batch: Transitions) -> Obs:
        """Return the features [T * B, units] after the end of each step's n-step window, without a gradient."""
        with torch.no_grad():
            return self.following(batch, self.along(batch, 0))["h"]


class NoMemory(nn.Module):
    """The trunk without a memory: networks read the observations themselves."""

    def __init__(self, spec: Spec, net: Net, critic_net: Net) -> None:
        super().__init__()
        self.spec = spec
        self.net = net
        self.critic_net = critic_net

    def obs(self, batch: Transitions) -> Obs:
        """Return the observations [B, ...] of a batch."""
        return batch.obs

    def next_obs(self, batch: Transitions) -> Obs:
        """Return the next observations [B, ...] of a batch."""
        return batch.next_obs


#: Makes the inputs of the critics of an algorithm with replay.
Trunk = MemoryTrunk | NoMemory


def memory_trunk(
    spec: Spec,
    net: Net,
    memory: str | None,
    burn_in: int | None = None,
    critic_net: CriticNet | None = None,
) -> Trunk:
    """Make the trunk of an algorithm with replay.

    Args:
        spec: of the environment.
        net: options of the layers.
        memory: the name and options of a memory, such as `gru:units=128`; None: no memory.
        burn_in: the number of first steps of a sequence without a gradient; None: `BURN_IN`.
        critic_net: options of the critics that differ from those of `net`. If there are some, the critics have their
            own encoder and memory, and the policy reads the trunk from `policy_trunk`.
    """
    critic = critic_net or CriticNet()
    if memory is None:
        return NoMemory(spec, net, critic.over(net))
    steps = BURN_IN if burn_in is None else burn_in
    if not critic.differences():
        return MemoryTrunk(spec, net, memory, steps)
    # The buffer stores the state of the policy's memory, not of this one.
    trunk = MemoryTrunk(spec, critic.over(net), memory, steps, stored=False)
    trunk.net = layers_after(net)
    return trunk


def policy_trunk(
    spec: Spec,
    net: Net,
    memory: str | None,
    burn_in: int | None = None,
    critic_net: CriticNet | None = None,
) -> MemoryTrunk | None:
    """Make the trunk of a policy with its own memory; None if it reads the trunk of the critics.

    Args:
        spec, net, memory, burn_in, critic_net: as of `memory_trunk`, which makes the trunk of the critics.
    """
    if memory is None or critic_net is None or not critic_net.differences():
        return None
    return MemoryTrunk(spec, net, memory, BURN_IN if burn_in is None else burn_in)


def layers_after(net: Net) -> Net:
    """Return the options of the last hidden layer: observations, convolutions and factory belong to the encoder."""
    last = net.part(slice(-1, None))
    return Net(
        hidden=last.hidden,
        activation=last.activation,
        layer_norm=net.layer_norm,
        init=last.init,
        gain=net.gain,
        output_gain=net.output_gain,
    )
