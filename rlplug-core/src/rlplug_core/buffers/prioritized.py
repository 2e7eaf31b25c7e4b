"""Prioritized replay: transitions with large errors are sampled more often; importance weights correct the bias.

Proportional prioritization (Schaul et al., 2016, arXiv:1511.05952).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from rlplug_core.arrays import to_host
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.storage import Store
from rlplug_core.buffers.sum_tree import SumTree
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, linear
from rlplug_core.errors import RlplugError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result, State, Step


@dataclass(frozen=True)
class Priority:
    """Exponents of prioritized replay.

    Attributes:
        alpha: the exponent of priorities; 0 samples uniformly.
        beta: the exponent of importance weights, over the run's progress; 1 corrects the sampling bias fully.
        epsilon: added to every priority, so that every transition can be sampled.
    """

    alpha: float = 0.6
    beta: Schedule = field(default_factory=lambda: linear(0.4, 1.0))
    epsilon: float = 1e-6


class PrioritizedReplay(ReplayBuffer):
    """A ring of steps, sampled with P(i) = p_i^alpha / sum_k p_k^alpha; the learner reports p as `Result.priority`.

    A new transition has the largest priority so far. The importance weights (N P(i))^-beta are divided by the largest
    of their batch, so that they only scale an update down (docs/decisions/0020). Arguments as in `ReplayBuffer`.
    """

    def __init__(
        self,
        capacity: int,
        pace: ReplaySchedule,
        n_step: int,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device | None = None,
        priority: Priority = Priority(),
        store: Store = "memory",
        agents: int = 0,
    ) -> None:
        super().__init__(
            capacity,
            pace,
            n_step=n_step,
            gamma=gamma,
            seeds=seeds,
            device=device,
            store=store,
            agents=agents,
        )
        self.priority = priority
        self.tree = SumTree(0)

    @property
    def settings(self) -> dict[str, float]:
        return {**super().settings, "priority.alpha": self.priority.alpha}

    @property
    def places(self) -> int:
        """Return the number of transitions that it can store."""
        return 0 if self.data is None else self.data.total

    @property
    def fill_level(self) -> int:
        """Return the number of stored transitions."""
        return 0 if self.data is None else min(self.count * self.data.num_envs, self.places)

    @property
    def mass(self) -> float:
        return self.tree.total

    def add(self, step: Step, source: int = 0) -> None:
        super().add(step, source)
        self._set_new_masses()

    def _set_new_masses(self) -> None:
        """Give the newest steps their masses, which stay 0 until their n-step windows are complete."""
        assert self.data is not None
        data = self.data
        num_envs = data.num_envs
        if data.count == 1:
            self.tree = SumTree(data.total)
        starts = self._starts_window(data.count - self.span)
        if self.span > 1 or not starts:  # the evicted step may have had a mass
            newest = (data.count - 1) % data.slots * num_envs
            self.tree.fill(newest, newest + num_envs, 0.0)
        if starts:
            slot = (data.count - self.span) % data.slots
            mass = self.largest if data.all_valid else self.largest * data.valid[slot]
            self.tree.fill(slot * num_envs, (slot + 1) * num_envs, mass)

    def _starts_window(self, time: int) -> bool:
        """Return whether windows that can be sampled start at this time."""
        return time >= 0

    def draw(self, size: int, clock: Clock) -> Transitions:
        """Sample one transition from each of `size` equal shares of the total mass (stratified sampling)."""
        points = (np.arange(size) + self.generator.random(size)) * (self.tree.total / size)
        index, mass = self.choose(points)
        return self.gather(index, self.weights(mass, clock))

    def choose(self, points: Array) -> tuple[Array, Array]:
        place = self.tree.find(points)
        return self._numbers(place), self.tree.mass.take(place)

    def weights(self, mass: Array, clock: Clock) -> Array:
        weight = (mass / mass.min()) ** -self.priority.beta(clock.progress)
        return weight.astype(np.float32)

    def _numbers(self, place: Array) -> Array:
        """Return the numbers of the transitions at these positions."""
        assert self.data is not None
        newest = self.data.count * self.data.num_envs - 1
        return newest - (newest - place) % self.data.total

    def _set(self, place: Array, mass: Array) -> None:
        self.tree.set(place, mass)

    def feedback(self, batch: Transitions, result: Result) -> None:
        """Store the learner's priorities [B] and extras; skip transitions that were evicted since.

        Raises:
            RlplugError: the learner reports no priorities, or negative or infinite ones.
        """
        super().feedback(batch, result)
        if result.priority is None:
            raise RlplugError(
                "prioritized replay needs `Result.priority` from `update`, such as the absolute errors [B]"
            )
        priority = to_host(result.priority).astype(np.float64)
        if not (priority >= 0).all() or not np.isfinite(priority).all():
            raise RlplugError(
                "the learner reports priorities that are negative or not finite: has its loss diverged?"
            )
        mass = (priority + self.priority.epsilon) ** self.priority.alpha
        index = to_host(batch.index)
        stored = self._is_stored(index)
        if not stored.all():
            mass = mass[stored]
            index = index[stored]
        self._set(index % self.places, mass)
        self.largest = max(self.largest, float(mass.max(initial=0.0)))

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "mass": self.tree.mass[: self.fill_level],
            "largest": self.largest,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.largest = state["largest"]
        self.tree = SumTree(self.places)
        self.tree.load(state["mass"])
