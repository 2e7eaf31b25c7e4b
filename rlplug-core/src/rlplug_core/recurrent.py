"""Acting and learning with memory: the agent that carries it, and rollouts whose rows stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlplug_core.agents import PolicyAgent
from rlplug_core.batches import Rollout, Samples, rows_of, shuffled, to_tensors
from rlplug_core.clock import Clock
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.nets.memory import RecurrentPolicy, RecurrentPolicyAndCritic
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Carry, Obs, tree_map


class MemoryAgent(PolicyAgent):
    """Samples from a policy with memory, which is its carry; a row that opens an episode begins without."""

    def __init__(self, policy: RecurrentPolicy, seeds: Seeds, acting: str = "auto", log_prob: bool = False) -> None:
        super().__init__(policy, seeds, acting, log_prob)
        self.policy, self.device = policy, next(policy.parameters()).device

    def initial(self, rows: int) -> Carry:
        super().initial(rows)
        return self.policy.memory.initial(rows)

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        with torch.inference_mode():
            seen, opens, before = (to_tensors(tree, self.device) for tree in (obs, first, carry))
            memory = self.policy.remember(seen, opens, before)
            outputs = self.policy.on(memory, seen).cpu().numpy()
        return self.choose(outputs, tree_map(lambda part: part.cpu().numpy(), memory), explore)


@dataclass(slots=True)
class Sequences(Samples):
    """The samples of whole rows, for networks with memory: T steps of N rows as [T * N], those of the first step first.

    `first` [T * N] says where an episode opens, `carry` [N, ...] is what was remembered before the first step, `valid`
    [T * N] where a row holds a transition, None for everywhere.
    """

    first: Tensor
    carry: Any
    valid: Tensor | None

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.obs, self.first, self.carry, self.valid

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Samples]:
        """Whole rows in random order, as many at a time as have `size` samples; all at once where it covers them."""
        rows = rows_of(self.carry)
        return shuffled(self, rows, size * rows // len(self.first), generator)

    def take(self, index: Tensor) -> Sequences:
        """The rows at `index` [n], each whole."""
        starts = torch.arange(0, len(self.first), rows_of(self.carry), device=index.device)
        at = (starts.unsqueeze(1) + index).flatten()
        taken = Samples.take(replace(self, share=self.counts, carry=None), at)
        taken.carry = tree_map(lambda part: part.index_select(0, index), self.carry)
        return taken


def check_no_units(units: int | None) -> None:
    """Raise UsageError where units are given to what has no memory."""
    if units is not None:
        raise UsageError("units are those of a memory; give --memory gru or lstm too, or leave units at none")


def check_whole_rows(steps: int, batch: int) -> None:
    """Raise BadConfig where a minibatch of `batch` samples has no room for a row of `steps`."""
    if batch < steps:
        raise BadConfig(
            f"with a memory minibatches are made of whole rows, and one of {batch} samples has no room for a row of "
            f"{steps} steps; give --batch {steps} or more, or --steps {batch} or fewer"
        )


def sequences(rollout: Rollout, advantage: Array, target: Array, device: torch.device) -> Sequences:
    """A rollout's rows with their advantages and value targets [T, N], as `Rollout.samples` but whole."""
    flat = rollout.samples(advantage, target, device)
    first, carry = to_tensors(rollout.first.reshape(-1), device), to_tensors(rollout.carry, device)
    return Sequences(
        flat.weight, flat.counts, flat.obs, flat.action, flat.advantage, flat.target, flat.extras, first, carry,
        None if rollout.whole else flat.weight > 0,
    )  # fmt: skip


def recurrent_values(rollout: Rollout, networks: RecurrentPolicyAndCritic, device: torch.device) -> tuple[Array, Array]:
    """V of every observation and of every step's true successor, both [T, N], as `Rollout.values` but with memory.

    What followed the last step, or one at which an episode was truncated, is seen with the memory after that step.
    """
    shape, rows, cuts = rollout.reward.shape, rollout.reward.shape[1], rollout.cuts
    flat = tree_map(lambda array: array.reshape(-1, *array.shape[2:]), rollout.obs)
    never, always = np.zeros(rows, dtype=bool), np.ones(rows, dtype=bool)
    first = np.concatenate([rollout.first.reshape(-1), never])
    valid = None if rollout.whole else np.concatenate([rollout.weight.reshape(-1) > 0, always])
    with torch.inference_mode():
        memory = networks.policy.remember(*(to_tensors(tree, device) for tree in (flat, first, rollout.carry, valid)))
        value = networks.critic(memory).cpu().numpy()
        successor = value[rows:].copy()
        if cuts.count:
            at = torch.from_numpy(cuts.index).to(device)
            before = tree_map(lambda part: part.index_select(0, at), memory)
            after = networks.policy.remember(
                to_tensors(cuts.obs, device), torch.zeros_like(at, dtype=torch.bool), before
            )
            successor[cuts.index[: cuts.count]] = networks.critic(after)[: cuts.count].cpu().numpy()
    return value[:-rows].reshape(shape), successor.reshape(shape)
