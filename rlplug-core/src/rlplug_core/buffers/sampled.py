"""Prioritized replay that evicts a random transition, preferably of low priority, instead of the oldest.

Each finished transition is kept with both observations and its n-step sum, so that any one can be evicted
(docs/decisions/0022).
"""

from __future__ import annotations

import numpy as np

from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.storage import read_rows, storage_from, write_rows
from rlplug_core.buffers.sum_tree import SumTree
from rlplug_core.types import Array, State, tree_map

#: The smallest mass whose inverse is computed; smaller masses count as this one.
LEAST = 1e-30


class SampledReplay(PrioritizedReplay):
    """Samples as `PrioritizedReplay`, and evicts with P(i) = p_i^-alpha / sum_k p_k^-alpha; same arguments.

    A ring has the newest n steps. A finished transition takes a free place, or the place of an evicted transition of
    an earlier step. Its number is `finished * capacity + place`, so it contains order and place. Observations are
    stored whole, two for each transition.
    """

    numbers: Array  # [capacity] the number of the transition at each place
    inverse: SumTree  # of p^-alpha
    # the finished transitions: the stores of `obs` and `next_obs`, and under `rest` the other fields, in memory
    transitions: State
    finished = 0  # number of transitions ever stored

    @property
    def places(self) -> int:
        return self.capacity

    @property
    def fill_level(self) -> int:
        return min(self.finished, self.capacity)

    def ready(self) -> bool:
        return self.finished > 0

    def look_up(self, index: Array) -> State:
        place = index % self.capacity
        return tree_map(lambda stored: read_rows(stored, place), self.transitions)

    def _slots(self, num_envs: int) -> int:
        super()._slots(num_envs)
        return self.n_step

    def _set_new_masses(self) -> None:
        """Store the transitions that the newest step finishes."""
        data = self.data
        assert data is not None
        if data.count < self.n_step:
            return
        start = data.count - self.n_step
        index = start * data.num_envs + np.flatnonzero(data.valid[start % data.slots])
        if len(index):
            self._store_rows(super().look_up(index), len(index))

    def _store_rows(self, rows: State, count: int) -> None:
        if not self.finished:
            self._allocate(rows)
        free = np.arange(self.fill_level, min(self.fill_level + count, self.capacity))
        place = np.concatenate([free, self._evict(count - len(free))])
        tree_map(lambda stored, value: write_rows(stored, place, value), self.transitions, rows)
        self.numbers[place] = (self.finished + np.arange(count)) * self.capacity + place
        self._set(place, np.full(count, self.largest))
        self.finished += count

    def _allocate(self, rows: State) -> None:
        """Allocate storage that starts with these rows; only observations may be outside of host memory."""

        def allocate_tree(tree: object, store: str) -> object:
            return tree_map(lambda array: storage_from(array, self.capacity, store), tree)

        self.transitions = {
            name: allocate_tree(tree, "memory" if name == "rest" else self.store)
            for name, tree in rows.items()
        }
        self.numbers = np.zeros(self.capacity, np.int64)
        self.tree = SumTree(self.capacity)
        self.inverse = SumTree(self.capacity)

    def _evict(self, count: int) -> Array:
        """Return the places [count] of transitions to evict, sampled without replacement."""
        places = np.empty(count, np.int64)
        for number in range(count):
            place = self.inverse.find(self.generator.random(1) * self.inverse.total)
            self.inverse.set(place, np.zeros(1))
            places[number] = place[0]
        return places

    def _set(self, place: Array, mass: Array) -> None:
        super()._set(place, mass)
        self.inverse.set(place, 1 / np.maximum(mass, LEAST))

    def _numbers(self, place: Array) -> Array:
        return self.numbers[place]

    def _is_stored(self, index: Array) -> Array:
        return self.numbers[index % self.capacity] == index

    def _extras_at(self, numbers: Array) -> tuple[dict[str, Array], Array]:
        return self.transitions["rest"]["extras"], numbers % self.capacity

    def state_dict(self) -> State:
        saved = None
        if self.finished:
            saved = {
                "rows": tree_map(lambda stored: stored[: self.fill_level], self.transitions),
                "numbers": self.numbers[: self.fill_level],
            }
        return {**super().state_dict(), "finished": self.finished, "kept": saved}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.finished = state["finished"]
        if self.finished:
            self._allocate(state["kept"]["rows"])
            self.numbers[: self.fill_level] = state["kept"]["numbers"]
            self._set(np.arange(self.fill_level), np.array(state["mass"]))
