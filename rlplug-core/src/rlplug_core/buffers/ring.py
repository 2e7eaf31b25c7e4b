"""The last steps of every environment as a ring of arrays, and the n-step windows in it.

The step of a row at a time has the number `time * N + row`. Each part of an observation has its own storage.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlplug_core.arrays import to_host
from rlplug_core.buffers.frames import TRIAL, Stacked, frame_channels
from rlplug_core.buffers.storage import Store, Whole, allocate, check_extras, storage_from
from rlplug_core.types import Array, Obs, State, Step, tree_map

#: The storage classes of observations, by their names in a state.
STORAGES: dict[str, type[Whole] | type[Stacked]] = {Whole.kind: Whole, Stacked.kind: Stacked}


class Ring:
    """Stores every field as [slots, N, ...]. The observation after the end of an episode is stored separately."""

    FIELDS = ("action", "reward", "terminated", "ended", "valid", "extras")

    def __init__(
        self,
        slots: int,
        fields: dict[str, Any],
        obs: object,
        store: Store,
    ) -> None:
        self.slots = slots
        self.obs = obs
        self.count = 0
        self.action = fields["action"]
        self.reward = fields["reward"]
        self.extras = fields["extras"]
        self.terminated = fields["terminated"]
        self.ended = fields["ended"]
        self.valid = fields["valid"]
        self.num_envs = self.reward.shape[1]
        self.total = slots * self.num_envs
        self.all_valid = bool(self.valid.all())
        # `total` instead of -1, which reshape refuses for an array without elements.
        self.flat: dict[str, Any] = {
            name: tree_map(lambda a: a.reshape(self.total, *a.shape[2:]), fields[name])
            for name in self.FIELDS
        }
        self.store = store
        self._last_next_obs: Obs = None

    @classmethod
    def like(cls, step: Step, slots: int, store: Store) -> Ring:
        """Return an empty ring for steps like this one."""
        check_extras(step.extras, len(step.reward))

        def zero_slots(like: object) -> Obs:
            return tree_map(lambda array: np.zeros((slots, *array.shape), array.dtype), like)

        fields = {
            "action": zero_slots(step.action),
            "reward": zero_slots(step.reward),
            "terminated": zero_slots(step.terminated),
            "ended": zero_slots(step.terminated),
            "valid": np.ones((slots, *step.valid.shape), dtype=bool),
            "extras": zero_slots(step.extras),
        }
        obs = tree_map(
            lambda obs, next_obs: _storage_for(obs, next_obs, slots, store), step.obs, step.next_obs
        )
        return cls(slots, fields, obs, store)

    @property
    def oldest(self) -> int:
        """Return the time of the oldest stored step."""
        return max(0, self.count - self.slots)

    def write(self, step: Step) -> None:
        """Store a step in place of the oldest one, and its next observations in the place of the next step."""
        time = self.count
        slot = time % self.slots
        self._forget(slot)
        if step.obs is not self._last_next_obs:
            tree_map(lambda store, value: store.put(time, value), self.obs, step.obs)
        tree_map(lambda store, value: store.put(time + 1, value), self.obs, step.next_obs)
        self._last_next_obs = step.next_obs  # if no episode ended, it is `obs` of the next step
        self.action[slot] = step.action
        self.reward[slot] = step.reward
        self.terminated[slot] = step.terminated & step.valid if step.ended else False
        self.ended[slot] = (step.terminated | step.truncated) & step.valid if step.ended else False
        self.valid[slot] = step.valid
        # `count_nonzero` is four times as fast as `all`
        self.all_valid = self.all_valid and np.count_nonzero(step.valid) == self.num_envs
        for name, array in step.extras.items():
            self.extras[name][slot] = array
        if step.ended:
            self._finish(time, np.flatnonzero(self.ended[slot]), step.next_obs)
        self.count = time + 1
        if self.count == TRIAL:
            self.obs = tree_map(lambda store: store.simplest_form(self.count, self.store), self.obs)

    def end(self) -> None:
        """Mark the last step of every row as truncated, unless its episode ended."""
        if self.count:
            time = self.count - 1
            slot = time % self.slots
            running = np.flatnonzero(~self.ended[slot])
            numbers = np.arange(self.count * self.num_envs, (self.count + 1) * self.num_envs)
            next_obs = tree_map(lambda store: to_host(store.take(numbers)), self.obs)
            self._finish(time, running, next_obs)
            self.ended[slot] = True
            self._last_next_obs = None

    def _finish(self, time: int, rows: Array, next_obs: object) -> None:
        """Store the successors of the steps in these rows, which ended an episode."""
        for row in rows.tolist():
            successor = tree_map(operator.itemgetter(row), next_obs)
            number = time * self.num_envs + row
            tree_map(lambda store, value, n=number: store.finish(n, value), self.obs, successor)

    def _forget(self, slot: int) -> None:
        """Drop the separate observations of episode ends at the steps that the next write replaces."""
        if not np.count_nonzero(self.ended[slot]):
            return
        for row in np.flatnonzero(self.ended[slot]).tolist():
            number = (self.count - self.slots) * self.num_envs + row
            tree_map(lambda store, n=number: store.forget(n), self.obs)

    def window(
        self,
        index: Array,
        n: int,
        gamma: float,
    ) -> tuple[Array, Array, Array]:
        """Sum the rewards of windows of n steps.

        Steps of absent rows are skipped, as in rollouts (`estimators.next_valid`): they have no reward and no discount,
        and the successor of a step is the next observation of its row when the row is present again.

        Args:
            index: [B] numbers of the first steps of the windows.
            n: largest number of steps; a window ends with its episode.
            gamma: discount per step.

        Returns:
            The discounted sum of rewards, the number of the last step of each window, and gamma^k for its k rewards,
            each [B].
        """
        rewards = self.flat["reward"]
        ended = self.flat["ended"]
        valid = self.flat["valid"]
        reward = rewards.take(index % self.total).astype(np.float32, copy=False)
        discount = np.full(len(index), gamma, dtype=np.float32)
        if n == 1 and self.all_valid:
            return reward, index, discount
        last = index.copy()
        running = ~ended.take(index % self.total)
        for _ in range(1, n):
            last += self.num_envs * running
            position = last % self.total
            counts = running if self.all_valid else running & valid.take(position)
            reward += np.where(counts, discount * rewards.take(position), 0).astype(
                np.float32, copy=False
            )
            discount = np.where(counts, discount * np.float32(gamma), discount)
            running &= ~ended.take(position)
        if not self.all_valid:
            self._skip_absent(last, running)
        return reward, last, discount

    def _skip_absent(self, last: Array, running: Array) -> None:
        """Advance the `last` steps of windows, in place, while the row is absent in the next step."""
        valid = self.flat["valid"]
        ended = self.flat["ended"]
        while True:
            following = last + self.num_envs
            running = (
                running
                & (following < self.count * self.num_envs)
                & ~valid.take(following % self.total)
            )
            if not running.any():
                return
            last += self.num_envs * running
            running &= ~ended.take(last % self.total)

    def has_window(self, n: int) -> bool:
        """Return whether there is a complete window of n steps with a valid first step."""
        if self.all_valid:
            return self.count >= n
        times = range(self.oldest, self.count - n + 1)
        return any(self.valid[time % self.slots].any() for time in times)

    def state_dict(self) -> State:
        """Return the slots in use, as views."""
        used = min(self.count, self.slots)
        return {
            "slots": self.slots,
            "count": self.count,
            "fields": {
                name: tree_map(lambda array: array[:used], getattr(self, name))
                for name in self.FIELDS
            },
            "obs": tree_map(lambda store: (store.kind, store.state_dict(self.count)), self.obs),
        }

    @classmethod
    def load(cls, state: State, store: Store) -> Ring:
        slots = state["slots"]
        fields: dict[str, Any] = tree_map(
            lambda array: storage_from(array, slots, "memory"), state["fields"]
        )
        fields["valid"][len(state["fields"]["valid"]) :] = True
        obs = tree_map(
            lambda saved: STORAGES[saved[0]].load(saved[1], state["count"], store), state["obs"]
        )
        ring = cls(slots, fields, obs, store)
        ring.count = state["count"]
        return ring


def _storage_for(
    obs: Array,
    next_obs: Array,
    slots: int,
    store: Store,
) -> Whole | Stacked:
    """Return the storage of one part of observations: frame by frame if `next_obs` is `obs` with one more frame."""
    channels, last = frame_channels(obs, next_obs)
    if channels:
        return Stacked.like(obs, channels, last, slots, store)
    return Whole(allocate((slots + 1, *obs.shape), obs.dtype, store))
