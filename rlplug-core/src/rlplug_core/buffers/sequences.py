"""Prioritized replay of sequences, for memories (Kapturowski et al., 2019, R2D2) and models of several steps.

Steps are stored once, as in every replay. A sequence is consecutive steps of a row with the recurrent state before
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.batches import Transitions, concatenate, rows_of
from rlplug_core.buffers.prioritized import PrioritizedReplay, Priority
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.buffers.rollout import put
from rlplug_core.buffers.storage import Store, send
from rlplug_core.config.schedules import Schedule, linear
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Obs, RecurrentState, Result, State, Step, tree_map

#: A time, or an array of times.
T = TypeVar("T", int, Array)
#: The exponents of the paper (table 2), except that `beta` rises to 1 here.
PAPER_PRIORITY = Priority(alpha=0.9, beta=linear(0.6, 1.0))


@dataclass(frozen=True)
class SequenceShape:
    """The length of sequences, and the distance between their starts.

    Attributes:
        length: steps with a loss.
        burn_in: steps before them that only compute the memory.
        period: steps from the start of a sequence to the start of the next.
    """

    length: int
    burn_in: int
    period: int


class SequenceReplay(PrioritizedReplay):
    """A ring of steps. Sequences of them are sampled by their priorities, the learner's `Result.priority` [B].

    A batch has B sequences as transitions [T * B]: first step 1 of every sequence, then step 2, and so on. T is
    `burn_in + length + n_step - 1`: the last steps are only the ends of n-step windows. `weight` is 0 except for the
    steps with a loss. `recurrent_state` [B, ...] is the agent's memory before the first step, None if it has none.
    `index` [B] is the number of that step. The extras [T * B] are those of the steps, `is_first`, `valid` (whether a
    row has a transition) and `later`, the number of steps from a step to the last one of its window.

    Sequences may contain the end of an episode and the start of the next one; a memory must reset there.

    Args:
        shape: the length of sequences.
        capacity, pace, n_step, gamma, seeds, device, priority, store: as in `ReplayBuffer`, in steps; a batch has
            `pace.batch_size` sequences.
    """

    def __init__(
        self,
        shape: SequenceShape,
        capacity: int,
        pace: ReplaySchedule,
        n_step: int,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device | None = None,
        priority: Priority = PAPER_PRIORITY,
        store: Store = "memory",
    ) -> None:
        super().__init__(
            capacity,
            pace,
            n_step=n_step,
            gamma=gamma,
            seeds=seeds,
            device=device,
            priority=priority,
            store=store,
        )
        self.shape = shape
        #: [K, N, ...] the recurrent states before the first steps of the last K sequences of each row.
        self.memories: RecurrentState = None

    @property
    def settings(self) -> dict[str, float]:
        shape = self.shape
        settings = {
            "sequence_length": shape.length,
            "burn_in": shape.burn_in,
            "sequence_period": shape.period,
        }
        return {**super().settings, **settings}

    @property
    def span(self) -> int:
        return self.shape.burn_in + self.shape.length + self.n_step - 1

    def _window_text(self) -> str:
        return f"sequences of {self.span} steps"

    def add(self, step: Step, source: int = 0) -> None:
        if step.recurrent_state is not None and self.count % self.shape.period == 0:
            self._store_memory(step)
        extras = {**step.extras, "is_first": step.is_first}
        super().add(replace(step, extras=extras), source)

    def _store_memory(self, step: Step) -> None:
        """Store the recurrent states before a step that starts sequences."""
        if self.memories is None:
            slots = self._slots(rows_of(step.obs)) // self.shape.period + 1
            self.memories = tree_map(
                lambda part: np.zeros((slots, *part.shape), part.dtype), step.recurrent_state
            )
        put(self.memories, self._slot_of(self.count), step.recurrent_state)

    def _slot_of(self, time: T) -> T:
        """Return the slot in `memories` of the sequence that starts at a time."""
        return time // self.shape.period % rows_of(self.memories)

    def _starts_window(self, time: int) -> bool:
        return time >= 0 and time % self.shape.period == 0

    def feedback(self, batch: Transitions, result: Result) -> None:
        """Store the priorities [B] of sequences, if the exponent of priorities is above 0."""
        if self.priority.alpha:
            super().feedback(batch, result)
        elif result.extras:
            self._write_extras(batch, result.extras)

    def _step_numbers(self, batch: Transitions) -> Array:
        assert self.data is not None
        offsets = self.data.num_envs * np.arange(self.span)[:, None]
        return (to_host(batch.index) + offsets).reshape(-1)

    def ready(self) -> bool:
        """Return whether a whole sequence is stored."""
        return self.data is not None and self.tree.total > 0

    def gather(self, index: Array, weight: Array | None = None) -> Transitions:
        """Make a batch of the sequences that start at given steps.

        Args:
            index: [B] numbers of their first steps.
            weight: [B] float32; default 1.

        Returns:
            Transitions [T * B] on the buffer's device.
        """
        assert self.data is not None
        burn_in = self.shape.burn_in
        num_envs = self.data.num_envs
        time = np.arange(self.span)[:, None]
        last = burn_in + self.shape.length - 1
        # Steps without a loss get the outcome of the nearest step with one: their own windows may be incomplete.
        loss_steps = (index + num_envs * time.clip(burn_in, last)).reshape(-1)
        outcome, ends = self.outcomes(loss_steps)
        obs, extras = self._copy_observations((index + num_envs * time).reshape(-1))
        has_loss = (time >= burn_in) & (time <= last) & extras["valid"].reshape(self.span, -1)
        weights = has_loss * (np.ones(len(index), np.float32) if weight is None else weight)
        columns = (
            weights.reshape(-1).astype(np.float32),
            obs,
            *(outcome["rest"][name] for name in ("action", "reward", "discount")),
            outcome["next_obs"],
            index,
            {**extras, "later": (ends - loss_steps) // num_envs},
            None if self.memories is None else self._memories_before(index),
        )
        first, *rest = send(columns, self.device)
        return Transitions(first, None, *rest)

    def _memories_before(self, index: Array) -> RecurrentState:
        """Return the recurrent states [B, ...] before the sequences that start at the steps `index` [B]."""
        assert self.data is not None
        num_envs = self.data.num_envs
        place = (self._slot_of(index // num_envs), index % num_envs)
        return tree_map(lambda part: part[place], self.memories)

    def join(self, parts: Sequence[Transitions]) -> Transitions:
        """Concatenate batches of sequences; the steps [T * B] of the result are ordered by time first."""

        def join_field(name: str, fields: list[Tensor]) -> Tensor:
            if name in ("index", "recurrent_state"):
                return torch.cat(fields)
            by_time = [rows.unflatten(0, (self.span, -1)) for rows in fields]
            return torch.cat(by_time, 1).flatten(0, 1)

        return concatenate(parts, join_field)

    def _copy_observations(
        self,
        numbers: Array,
    ) -> tuple[Obs, dict[str, Array]]:
        """Copy the observations and the extras of steps, with `valid` as an extra."""
        assert self.data is not None
        flat = self.data.flat
        place = numbers % self.data.total
        stored = {**flat["extras"], "valid": flat["valid"]}
        extras = {name: array.take(place, axis=0) for name, array in stored.items()}
        return tree_map(lambda store: store.take(numbers), self.data.obs), extras

    def state_dict(self) -> State:
        return {**super().state_dict(), "memories": self.memories}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.memories = tree_map(np.array, state["memories"])
