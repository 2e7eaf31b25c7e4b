"""Samples of rollouts as whole sequences, for networks with a memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlplug_core.batches import Rollout, Samples, rows_of, split_shuffled, to_tensors
from rlplug_core.errors import BadConfig
from rlplug_core.types import Array, Obs, RecurrentState, tree_map


@dataclass(slots=True)
class Sequences(Samples):
    """Samples of whole sequences, for networks with a memory: T steps of N rows as [T * N], the first step first.

    `is_first` [T * N] marks the first step of an episode, `recurrent_state` [N, ...] is the memory before the first
    step, `valid` [T * N] marks the rows with a transition; None means all of them.
    """

    is_first: Tensor
    recurrent_state: RecurrentState
    valid: Tensor | None

    @property
    def inputs(self) -> tuple[Obs, ...]:
        return self.obs, self.is_first, self.recurrent_state, self.valid

    def every(self, nth: int) -> Sequences:
        """Return every `nth` sequence as a batch."""
        rows = rows_of(self.recurrent_state)
        return self.take(torch.arange(0, rows, nth, device=self.weight.device))

    def minibatches(
        self,
        size: int,
        generator: np.random.Generator,
    ) -> Iterator[Samples]:
        """Yield whole sequences in random order, about `size` samples at a time; all at once if `size` covers them."""
        num_envs = rows_of(self.recurrent_state)
        return split_shuffled(self, num_envs, size * num_envs // len(self.is_first), generator)

    def take(self, index: Tensor) -> Sequences:
        """Return the sequences of the rows `index` [n]."""
        starts = torch.arange(
            0, len(self.is_first), rows_of(self.recurrent_state), device=index.device
        )
        samples = (starts.unsqueeze(1) + index).flatten()
        taken = Samples.take(replace(self, share=self.counts, recurrent_state=None), samples)
        taken.recurrent_state = tree_map(
            lambda part: part.index_select(0, index), self.recurrent_state
        )
        return taken

    def parts(self, order: Tensor, size: int) -> Iterator[Sequences]:
        """Yield the sequences of `size` rows at a time."""
        for start in range(0, len(order) - len(order) % size, size):
            yield self.take(order[start : start + size])


def check_whole_sequences(steps: int, batch: int) -> None:
    """Raise BadConfig if a minibatch of `batch` samples has no room for a sequence of `steps`."""
    if batch < steps:
        raise BadConfig(
            f"with a memory minibatches are made of whole sequences, and one of {batch} samples has no room for a "
            f"sequence of {steps} steps; give --batch-size {steps} or more, or --n-steps {batch} or fewer"
        )


def sequences(
    rollout: Rollout,
    advantage: Array,
    target: Array,
    device: torch.device,
) -> Sequences:
    """Make samples of whole sequences for a recurrent network.

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
