"""Acting and learning with memory: the agent that carries it, and rollouts with whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.batches import Rollout, Samples, rows_of, split_shuffled, to_tensors
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.nets.recurrent import RecurrentPolicy, RecurrentPolicyAndCritic, RecurrentQ
from rlplug_core.seeds import Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, tree_map


class MemoryAgent(PolicyAgent):
    """Samples from a policy with memory, its recurrent state; a row that starts an episode has an empty memory."""

    def __init__(
        self,
        policy: RecurrentPolicy,
        seeds: Seeds,
        inference_backend: str = "auto",
        log_prob: bool = False,
    ) -> None:
        super().__init__(policy, seeds, inference_backend, log_prob)
        self.policy, self.device = policy, next(policy.parameters()).device

    def initial(self, num_envs: int) -> RecurrentState:
        super().initial(num_envs)
        return self.policy.memory.initial(num_envs)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        with torch.inference_mode():
            seen, opens, before = (
                to_tensors(tree, self.device) for tree in (obs, is_first, recurrent_state)
            )
            memory = self.policy.remember(seen, opens, before)
            outputs = self.policy.on(memory, seen).cpu().numpy()
        return self.choose(outputs, tree_map(lambda part: part.cpu().numpy(), memory), explore)


class MemoryGreedy(EpsilonGreedy):
    """Epsilon-greedy on action values with a memory, which is its recurrent state; arguments as of `EpsilonGreedy`."""

    def __init__(
        self,
        network: RecurrentQ,
        epsilon: Schedule,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
        evaluation: float = 0.0,
    ) -> None:
        super().__init__(
            network,
            epsilon,
            seeds,
            inference_backend=inference_backend,
            warmup=warmup,
            evaluation=evaluation,
        )
        self.recurrent = network
        self.device = next(network.parameters()).device

    def initial(self, num_envs: int) -> RecurrentState:
        super().initial(num_envs)
        return self.recurrent.memory.initial(num_envs)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        with torch.inference_mode():
            seen, opens, before = (
                to_tensors(tree, self.device) for tree in (obs, is_first, recurrent_state)
            )
            memory = self.recurrent.remember(seen, opens, before)
            values = self.recurrent.on(memory, seen).cpu().numpy()
        after = tree_map(lambda part: part.cpu().numpy(), memory)
        return Act(self.selected(obs, values, clock, explore), after, NO_EXTRAS)


@dataclass(slots=True)
class Sequences(Samples):
    """The samples of whole rows, for networks with memory: T steps of N rows as [T * N], those of the first step first.

    `is_first` [T * N] marks the first step of an episode, `recurrent_state` [N, ...] is the memory before the first
    step, `valid` [T * N] marks the rows with a transition; None means all of them.
    """

    is_first: Tensor
    recurrent_state: Any
    valid: Tensor | None

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.obs, self.is_first, self.recurrent_state, self.valid

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Samples]:
        """Yield whole rows in random order, about `size` samples at a time; all at once if `size` covers them."""
        num_envs = rows_of(self.recurrent_state)
        return split_shuffled(self, num_envs, size * num_envs // len(self.is_first), generator)

    def take(self, index: Tensor) -> Sequences:
        """The rows at `index` [n], each whole."""
        starts = torch.arange(
            0, len(self.is_first), rows_of(self.recurrent_state), device=index.device
        )
        at = (starts.unsqueeze(1) + index).flatten()
        taken = Samples.take(replace(self, share=self.counts, recurrent_state=None), at)
        taken.recurrent_state = tree_map(
            lambda part: part.index_select(0, index), self.recurrent_state
        )
        return taken

    def parts(self, order: Tensor, size: int) -> Iterator[Sequences]:
        """`size` whole rows at a time."""
        for start in range(0, len(order) - len(order) % size, size):
            yield self.take(order[start : start + size])


def check_no_units(units: int | None) -> None:
    """Raise UsageError if `units` are given without a memory."""
    if units is not None:
        raise UsageError(
            "recurrent_hidden_size is of a recurrent cell; give --recurrent-cell gru or lstm too, or leave "
            "recurrent_hidden_size at none"
        )


def check_whole_sequences(steps: int, batch: int) -> None:
    """Raise BadConfig if a minibatch of `batch` samples has no room for a row of `steps`."""
    if batch < steps:
        raise BadConfig(
            f"with a memory minibatches are made of whole rows, and one of {batch} samples has no room for a row of "
            f"{steps} steps; give --batch-size {steps} or more, or --n-steps {batch} or fewer"
        )


def sequences(rollout: Rollout, advantage: Array, target: Array, device: torch.device) -> Sequences:
    """Make samples of whole rows for a recurrent network.

    Args:
        rollout: T steps of N environments.
        advantage, target: [T, N], as `Rollout.samples` takes them.
        device: device of the tensors.

    Returns:
        Tensors of the T * N samples, with `is_first` and the recurrent state before each row's first step.
    """
    flat = rollout.samples(advantage, target, device)
    first = to_tensors(rollout.is_first.reshape(-1), device)
    recurrent_state = to_tensors(rollout.recurrent_state, device)
    return Sequences(
        weight=flat.weight,
        share=flat.counts,
        obs=flat.obs,
        action=flat.action,
        advantage=flat.advantage,
        target=flat.target,
        extras=flat.extras,
        is_first=first,
        recurrent_state=recurrent_state,
        valid=None if rollout.whole else flat.weight > 0,
    )


def recurrent_values(
    rollout: Rollout, networks: RecurrentPolicyAndCritic, device: torch.device
) -> tuple[Array, Array]:
    """V of every observation and of every step's true successor, both [T, N], as `Rollout.values` but with memory.

    The successor of the last step, or of a truncated one, is evaluated with the memory after that step.
    """
    shape, num_envs, cuts = rollout.reward.shape, rollout.reward.shape[1], rollout.truncations
    flat = tree_map(lambda array: array.reshape(-1, *array.shape[2:]), rollout.obs)
    never = np.zeros(num_envs, dtype=bool)
    always = np.ones(num_envs, dtype=bool)
    first = np.concatenate([rollout.is_first.reshape(-1), never])
    valid = None if rollout.whole else np.concatenate([rollout.weight.reshape(-1) > 0, always])
    with torch.inference_mode():
        memory = networks.policy.remember(
            *(to_tensors(tree, device) for tree in (flat, first, rollout.recurrent_state, valid))
        )
        value = networks.critic(memory).cpu().numpy()
        successor = value[num_envs:].copy()
        if cuts.count:
            at = torch.from_numpy(cuts.index).to(device)
            before = tree_map(lambda part: part.index_select(0, at), memory)
            after = networks.policy.remember(
                to_tensors(cuts.obs, device), torch.zeros_like(at, dtype=torch.bool), before
            )
            successor[cuts.index[: cuts.count]] = networks.critic(after)[: cuts.count].cpu().numpy()
    return value[:-num_envs].reshape(shape), successor.reshape(shape)
