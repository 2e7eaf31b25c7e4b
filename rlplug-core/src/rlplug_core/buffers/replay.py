"""Uniform replay: the last `capacity` steps, and random batches of n-step transitions from them.

Steps are stored as they come, [slots, N]; a transition's successor is the next slot's observation, and is kept apart
only where an episode ended. The n-step sums are made when a batch is drawn, so nothing is ever pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlplug_core.batches import Transitions, rows_of, to_tensors
from rlplug_core.buffers.rollout import put
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result, State, Step, first_leaf, tree_map


@dataclass(frozen=True)
class Pace:
    """When batches are due: from `start` stored steps on, `batches` of `size` transitions every `every` steps."""

    size: int
    every: int
    batches: int
    start: int


class ReplayBuffer:
    """A ring of steps; batches are drawn uniformly from the rows whose n-step window is complete.

    Args:
        capacity: how many steps of single rows to keep.
        pace: when which batches are due.
        n_step: how many rewards a transition sums, fewer where an episode ends before.
        gamma: discount per step.
        seeds: where draws come from.
        device: where batches go.
    """

    def __init__(
        self, capacity: int, pace: Pace, n_step: int, gamma: float, seeds: Seeds, device: torch.device | None = None
    ) -> None:
        self.capacity, self.pace, self.n_step, self.gamma = capacity, pace, n_step, gamma
        self.generator = seeds.generator()
        self.device = device or torch.device("cpu")
        self.added = self.owed = self.count = 0
        self.data: _Ring | None = None

    def add(self, step: Step, source: int = 0) -> None:
        if self.data is None:
            self.data = _Ring.like(step, self._slots(rows_of(step.obs)))
        self.data.write(self.count % self.data.slots, step)
        self.count += 1
        before, pace = self.added, self.pace
        self.added += len(step.valid) if step.valid.all() else int(step.valid.sum())
        if self.added >= pace.start:
            self.owed += pace.batches * (self.added // pace.every - before // pace.every)

    def batches(self, clock: Clock) -> Iterable[Transitions]:
        return self._draw() if self.owed else ()

    def feedback(self, batch: Transitions, result: Result) -> None:
        """Uniform replay has no priorities."""

    def _draw(self) -> Iterator[Transitions]:
        while self.owed:
            self.owed -= 1
            yield self.gather(self.sample(self.pace.size))

    def sample(self, size: int) -> Array:
        """Flat indices [size] of rows that hold a transition with a complete window."""
        assert self.data is not None
        slots, rows = self.data.slots, self.data.rows
        kept = min(self.count, slots - 1)  # the oldest slot of a full ring holds what the newest step leads to
        complete, oldest = kept - self.n_step + 1, self.count - kept
        index: Array = (oldest * rows + self.generator.integers(0, complete * rows, size)) % (slots * rows)
        if not self.data.all_valid:
            unusable = ~self.data.valid.reshape(-1)[index]
            if unusable.any():
                index[unusable] = self._redraw(int(unusable.sum()), complete, oldest)
        return index

    def _redraw(self, size: int, complete: int, oldest: int) -> Array:
        """Draws in place of those that hit rows without a transition."""
        assert self.data is not None
        rows, slots = self.data.rows, self.data.slots
        candidates = (oldest * rows + np.arange(complete * rows)) % (slots * rows)
        usable = candidates[self.data.valid.reshape(-1)[candidates]]
        return self.generator.choice(usable, size)

    def gather(self, index: Array) -> Transitions:
        """The n-step transitions that begin at the flat indices [B]."""
        data = self.data
        assert data is not None
        rows, total = data.rows, data.slots * data.rows
        reward = data.flat("reward")[index].astype(np.float32)
        last, discount = index, np.full(len(index), self.gamma, dtype=np.float32)
        if self.n_step > 1:
            reward, last, discount = self._window(index, reward)
        ended = data.flat("ended")[last]
        discount = discount * ~data.flat("terminated")[last]
        following = (last + rows) % total
        next_obs = data.take(data.obs, following)
        if ended.any():
            data.put_finals(next_obs, np.flatnonzero(ended), last)
        parts = (data.take(data.obs, index), data.flat("action")[index], reward, discount, next_obs, index)
        extras = {name: data.take(array, index) for name, array in data.extras.items()}
        weight = torch.ones(len(index), device=self.device)
        return Transitions(weight, weight / len(index), *(to_tensors(part, self.device) for part in (*parts, extras)))

    def _window(self, index: Array, reward: Array) -> tuple[Array, Array, Array]:
        """Sums of up to n rewards, where each window ends, and gamma^k for its k steps."""
        data = self.data
        assert data is not None
        total = data.slots * data.rows
        running = ~data.flat("ended")[index]
        last, discount = index.copy(), np.full(len(index), self.gamma, dtype=np.float32)
        for _ in range(1, self.n_step):
            following = (last + data.rows) % total
            last = np.where(running, following, last)
            reward += np.where(running, discount * data.flat("reward")[last], 0).astype(np.float32)
            discount = np.where(running, discount * np.float32(self.gamma), discount)
            running &= ~data.flat("ended")[last]
        return reward, last, discount

    def _slots(self, rows: int) -> int:
        slots = self.capacity // rows
        if slots < self.n_step + 2:  # of two steps that follow each other one at least holds a transition
            raise UsageError(
                f"a replay of {self.capacity} steps is too small for {rows} rows and {self.n_step}-step returns"
            )
        if self.pace.start < (self.n_step + 1) * rows:
            raise UsageError(
                f"learning must start after more than {(self.n_step + 1) * rows} steps, not {self.pace.start}"
            )
        return slots

    def restart(self) -> None:
        """The newest step of every row ends its episode, by truncation."""
        if self.data is not None and self.count:
            self.data.end((self.count - 1) % self.data.slots)

    def state_dict(self) -> State:
        return {
            "added": self.added, "owed": self.owed, "count": self.count,
            "generator": self.generator.bit_generator.state,
            "data": None if self.data is None else self.data.state_dict(self.count),
        }  # fmt: skip

    def load_state_dict(self, state: State) -> None:
        self.added, self.owed, self.count = state["added"], state["owed"], state["count"]
        self.generator.bit_generator.state = state["generator"]
        self.data = None if state["data"] is None else _Ring.load(state["data"])


class _Ring:
    """The storage: every field [slots, N, ...], and the true successors where episodes ended, by flat index."""

    FIELDS = ("obs", "action", "reward", "terminated", "ended", "valid", "extras")

    def __init__(self, slots: int, fields: dict[str, Any]) -> None:
        self.slots = slots
        self.obs, self.extras = fields["obs"], fields["extras"]
        self.action, self.reward = fields["action"], fields["reward"]
        self.terminated, self.ended, self.valid = fields["terminated"], fields["ended"], fields["valid"]
        self.rows = self.reward.shape[1]
        self.all_valid = bool(self.valid.all())
        self.finals: dict[int, Any] = {}
        self._flat = {name: self._flatten(getattr(self, name)) for name in ("action", "reward", "terminated", "ended")}

    @classmethod
    def like(cls, step: Step, slots: int) -> _Ring:
        def space(like: Any) -> Any:
            return tree_map(lambda array: np.zeros((slots, *array.shape), array.dtype), like)

        fields = {
            "obs": space(step.obs), "action": space(step.action), "reward": space(step.reward),
            "terminated": space(step.terminated), "ended": space(step.terminated), "extras": space(step.extras),
        }  # fmt: skip
        return cls(slots, {**fields, "valid": np.ones((slots, *step.valid.shape), dtype=bool)})

    def write(self, slot: int, step: Step) -> None:
        """Store a step, and its successors in the next slot, which the next step overwrites with what is acted on."""
        self._forget(slot)
        put(self.obs, slot, step.obs)
        put(self.obs, (slot + 1) % self.slots, step.next_obs)
        self.action[slot] = step.action
        self.reward[slot] = step.reward
        self.terminated[slot] = step.terminated
        self.ended[slot] = step.terminated | step.truncated if step.ended else False
        self.valid[slot] = step.valid
        self.all_valid = self.all_valid and bool(step.valid.all())
        for name, array in step.extras.items():
            self.extras[name][slot] = array
        if step.ended:
            for row in np.flatnonzero(self.ended[slot]):
                self.finals[slot * self.rows + int(row)] = tree_map(lambda array, r=row: array[r].copy(), step.next_obs)

    def end(self, slot: int) -> None:
        """Mark the step in `slot`, the newest, as the last of its episodes; its successors lie in the next slot."""
        following = tree_map(lambda array: array[(slot + 1) % self.slots], self.obs)
        for row in np.flatnonzero(~self.ended[slot]):
            self.finals[slot * self.rows + int(row)] = tree_map(lambda array, r=row: array[r].copy(), following)
        self.ended[slot] = True

    def _forget(self, slot: int) -> None:
        if self.ended[slot].any():
            for row in range(self.rows):
                self.finals.pop(slot * self.rows + row, None)

    def flat(self, name: str) -> Array:
        """A field as [slots * N, ...]."""
        return self._flat[name]

    def take(self, tree: Any, index: Array) -> Any:
        """The rows at flat indices [B], as a copy."""
        return tree_map(lambda array: self._flatten(array).take(index, axis=0), tree)

    def put_finals(self, next_obs: Any, positions: Array, last: Array) -> None:
        """Overwrite `next_obs` [B, ...] at `positions`, whose windows end with an episode, by the true successors."""
        finals = [self.finals[int(last[position])] for position in positions]
        tree_map(lambda array, *parts: array.__setitem__(positions, np.stack(parts)), next_obs, *finals)

    def _flatten(self, array: Array) -> Array:
        return array.reshape(-1, *array.shape[2:])

    def state_dict(self, count: int) -> State:
        """What was written: the filled slots and, after them, the observations that the newest step leads to."""
        used = min(count, self.slots)
        extra = used + (used < self.slots)
        fields = {
            name: tree_map(lambda array, end=extra if name == "obs" else used: array[:end].copy(), getattr(self, name))
            for name in self.FIELDS
        }
        keys = sorted(self.finals)
        finals = tree_map(lambda *arrays: np.stack(arrays), *[self.finals[key] for key in keys]) if keys else None
        return {"slots": self.slots, "fields": fields, "keys": np.array(keys, dtype=np.int64), "finals": finals}

    @classmethod
    def load(cls, state: State) -> _Ring:
        slots = state["slots"]

        def grown(array: Array) -> Array:
            whole = np.zeros((slots, *array.shape[1:]), array.dtype)
            whole[: len(array)] = array
            return whole

        fields = {name: tree_map(grown, tree) for name, tree in state["fields"].items()}
        fields["valid"][len(first_leaf(state["fields"]["valid"])) :] = True
        ring = cls(slots, fields)
        for position, key in enumerate(state["keys"]):
            ring.finals[int(key)] = tree_map(lambda array, p=position: array[p], state["finals"])
        return ring
