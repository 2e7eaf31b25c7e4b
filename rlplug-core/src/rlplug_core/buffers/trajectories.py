"""The trajectory replay: whole rollouts, each returned when it is full and replayed later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlplug_core.batches import Rollout, Truncations, rows_of
from rlplug_core.buffers.rollout import FIELDS, RolloutBuffer, put
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, throughout
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, State, Step, tree_map

#: The metric that is the priority of a rollout, and the smallest priority, so that every rollout can be sampled.
NORM = "loss/gradient_norm"
LEAST = 1e-6


class TrajectoryReplay:
    """Returns every rollout once when it is full, then a random number of stored ones.

    With `alpha` above 0 a rollout is sampled in proportion to (gradient norm)^alpha: the norm at its last update, or
    for a new one the largest norm of all. Losses do not correct this preference.

    The rows of each source fill separate rollouts; the rollouts of all sources are stored together.

    Args:
        steps: rollout length per environment.
        capacity: number of stored rollouts; a new one replaces the oldest.
        ratio: average number of replayed rollouts per new one, a number or a schedule of progress; the number is
            Poisson distributed.
        start: number of stored rollouts before the first one is replayed.
        seeds: seeds of the draws.
        fresh: whether a rollout is returned when it is full; else only replayed ones are.
        alpha: preference for large gradients; 0 makes every stored rollout equally likely.
    """

    def __init__(
        self,
        steps: int,
        capacity: int,
        ratio: Schedule | float,
        start: int,
        seeds: Seeds,
        fresh: bool = True,
        alpha: float = 0.0,
    ) -> None:
        self.steps = steps
        self.capacity = capacity
        self.ratio = throughout(ratio)
        self.start = start
        self.fresh = fresh
        self.alpha = alpha
        self.incoming: dict[int, RolloutBuffer] = {}  # unfinished rollouts by source
        self.generator = seeds.generator()
        self.fields: State = {}  # every field [slots, T, N, ...]; slots double up to the capacity
        # For each slot the parts without a fixed shape: truncations, and the recurrent state before the first step.
        self.other_parts: list[State] = []
        self.priorities = np.zeros(capacity if alpha else 0)  # gradient norms
        self.last_slot = 0  # slot of the last returned rollout
        self.count = 0  # number of rollouts ever stored
        self.due_replays = 0  # number of stored rollouts to return before the next new one
        self.new = False  # whether to return the newest rollout

    def add(self, step: Step, source: int = 0) -> None:
        self._buffer_of(source).add(step)

    def _buffer_of(self, source: int) -> RolloutBuffer:
        if source not in self.incoming:
            self.incoming[source] = RolloutBuffer(self.steps)
        return self.incoming[source]

    def batches(self, clock: Clock) -> Iterator[Rollout]:
        yield from self._yield_due()
        for source in sorted(self.incoming):
            for rollout in self.incoming[source].batches(clock):
                self._store_rollout(rollout)
                self.new = self.fresh
                self.due_replays = (
                    int(self.generator.poisson(self.ratio(clock.progress)))
                    if self.count >= self.start
                    else 0
                )
                yield from self._yield_due()

    def _yield_due(self) -> Iterator[Rollout]:
        if self.new:
            self.new = False
            self.last_slot = (self.count - 1) % self.capacity
            yield self._rollout(self.last_slot)
        while self.due_replays:
            self.due_replays -= 1
            self.last_slot = self._draw()
            yield self._rollout(self.last_slot)

    def _draw(self) -> int:
        """Sample a rollout and return its slot."""
        used = len(self.other_parts)
        if not self.alpha:
            return int(self.generator.integers(used))
        weights = self.priorities[:used] ** self.alpha
        return int(self.generator.choice(used, p=weights / weights.sum()))

    def feedback(self, batch: Rollout, result: Result) -> None:
        """Store the gradient norm of the last rollout, if rollouts are sampled by it."""
        if self.alpha:
            self.priorities[self.last_slot] = max(float(result.metrics[NORM]), LEAST)

    def restart(self) -> None:
        """Drop the steps of unfinished rollouts."""
        for incoming in self.incoming.values():
            incoming.restart()

    def restart_source(self, source: int) -> None:
        """Drop the steps of the unfinished rollout of a source."""
        self._buffer_of(source).restart()

    def state_dict(self) -> State:
        used = len(self.other_parts)
        return {
            "made": {"n_steps": self.steps, "buffer_size in rollouts": self.capacity},
            "incoming": {
                str(source): incoming.state_dict() for source, incoming in self.incoming.items()
            },
            "count": self.count,
            "owed": self.due_replays,
            "new": self.new,
            "generator": self.generator.bit_generator.state,
            "apart": list(self.other_parts),
            "fields": tree_map(lambda array: array[:used], self.fields),
            "priorities": self.priorities,
        }

    def load_state_dict(self, state: State) -> None:
        for source, saved in state["incoming"].items():
            self._buffer_of(int(source)).load_state_dict(saved)
        self.count = state["count"]
        self.due_replays = state["owed"]
        self.new = state["new"]
        self.generator.bit_generator.state = state["generator"]
        self.other_parts = list(state["apart"])
        self.fields = tree_map(np.array, state["fields"])
        self.priorities = np.array(state.get("priorities", self.priorities))

    def _store_rollout(self, rollout: Rollout) -> None:
        slot = self.count % self.capacity
        if self.alpha:
            self.priorities[slot] = self.priorities.max() or 1.0
        fields = {name: getattr(rollout, name) for name in FIELDS}
        if not self.other_parts:
            self.fields = tree_map(lambda array: array[None].copy(), fields)
        elif slot == len(self.fields["weight"]):  # all slots are in use, and more are allowed
            added = min(slot, self.capacity - slot)
            self.fields = tree_map(
                lambda a: np.concatenate([a, np.zeros((added, *a.shape[1:]), a.dtype)]), self.fields
            )
        put(self.fields, slot, fields)
        stored = {"obs": rollout.truncations.obs, "index": rollout.truncations.index}
        truncations = tree_map(lambda array: array[: rollout.truncations.count], stored)
        entry = {"cuts": truncations, "recurrent_state": rollout.recurrent_state}
        self.other_parts[slot : slot + 1] = [tree_map(np.array, entry)]
        self.count += 1

    def _rollout(self, slot: int) -> Rollout:
        fields: dict[str, Any] = tree_map(lambda array: array[slot], self.fields)
        truncations = self.other_parts[slot]["cuts"]
        recurrent_state = self.other_parts[slot]["recurrent_state"]
        return Rollout(
            **fields,
            truncations=Truncations(
                truncations["obs"], truncations["index"], rows_of(truncations["obs"])
            ),
            recurrent_state=recurrent_state,
            whole=bool(fields["weight"].all()),
        )
