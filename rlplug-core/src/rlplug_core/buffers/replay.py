"""Uniform replay: the last `capacity` steps, and random batches of n-step transitions from them.

Steps are stored as they come; the n-step sums are made when a batch is drawn, so nothing is ever pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlplug_core.batches import Transitions, concatenated, rows_of
from rlplug_core.buffers.ring import Ring
from rlplug_core.buffers.storage import Store, sent
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, throughout
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result, State, Step, tree_map

#: Stores whose rows come as arrays.
ON_HOST = ("memory", "disk")
#: Bytes of observations, as many as fit into a fast cache, up to which batches are drawn together.
CACHED = 2**18


@dataclass(frozen=True)
class Pace:
    """The pace of batches: from `learning_starts` stored steps on, every `train_freq` steps `gradient_steps` batches.

    Each batch holds `batch_size` transitions.
    """

    batch_size: int
    train_freq: int
    gradient_steps: int
    learning_starts: int


class ReplayBuffer:
    """A ring of steps; batches are drawn uniformly from the rows whose n-step window is complete.

    Args:
        capacity: how many steps of single rows to keep.
        pace: when which batches are due.
        n_step: how many rewards a transition sums, fewer where an episode ends before.
        gamma: discount per step, a number or a function of the clock's progress.
        seeds: where draws come from.
        device: where batches go.
        store: where observations are kept: `memory`, `disk`, or a torch device such as `cuda`.
        together: how many batches that are due at the same time may be drawn by one `draw`, and then split; 1 where
            rows of a batch depend on one another, or on feedback.
    """

    def __init__(
        self,
        capacity: int,
        pace: Pace,
        n_step: int,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device | None = None,
        store: Store = "memory",
        together: int = 1,
    ) -> None:
        self.capacity = capacity
        self.pace = pace
        self.n_step = n_step
        self.discount = throughout(gamma)
        self.gamma = throughout(gamma)(0.0)
        self.generator = seeds.generator()
        self.device = device or torch.device("cpu")
        self.store = store
        self.together = together if self.device.type == "cpu" and store in ON_HOST else 1
        if store.startswith("cuda") and not torch.cuda.is_available():
            raise UsageError(
                f"buffer_storage '{store}' is not available to this torch; use --buffer-storage memory or disk"
            )
        self.added = self.owed = 0
        self.sources = 1  # actors that share a capacity of which this one has its part
        self.largest = 1.0  # the mass of new transitions, where they have masses of their own
        #: Of batches that are drawn together: the generator's state before, and how many were taken.
        self.begun: tuple[Any, int] | None = None
        self.data: Ring | None = None

    @property
    def made(self) -> dict[str, float]:
        """Return the options on which the meaning of its state's numbers depends, by their names."""
        return {"buffer_size": self.capacity, "n_step": self.n_step}

    @property
    def count(self) -> int:
        """Return how many vector steps were added."""
        return self.data.count if self.data is not None else 0

    @property
    def mass(self) -> float:
        """Return how much there is to be drawn from, beside other replays of the same kind."""
        return (
            0.0
            if self.data is None
            else float(min(self.data.count, self.data.slots) * self.data.num_envs)
        )

    def add(self, step: Step, source: int = 0) -> None:
        if self.data is None:
            self.data = Ring.like(step, self._slots(rows_of(step.obs)), self.store)
        self.data.write(step)
        before = self.added
        pace = self.pace
        self.added += int(np.count_nonzero(step.valid))
        if self.added >= pace.learning_starts:
            self.owed += pace.gradient_steps * (
                self.added // pace.train_freq - before // pace.train_freq
            )

    def batches(self, clock: Clock) -> Iterable[Transitions]:
        return self._due(clock) if self.owed else ()

    def feedback(self, batch: Transitions, result: Result) -> None:
        """Uniform replay has no priorities."""

    def _due(self, clock: Clock) -> Iterator[Transitions]:
        while self.owed and self.ready():
            self.gamma = self.discount(clock.progress)
            if (count := min(self.owed, self.together)) > 1 and (
                count := min(count, self._fitting())
            ) > 1:
                yield from self._burst(count, clock)
            else:
                self.owed -= 1
                yield self.draw(self.pace.batch_size, clock)

    def _burst(self, count: int, clock: Clock) -> Iterator[Transitions]:
        """Batches that are drawn as one, with the same numbers in them; those that nobody takes are not drawn."""
        size = self.pace.batch_size
        before = self.generator.bit_generator.state
        share = torch.from_numpy(np.ones(size, np.float32) / np.float32(size))
        try:
            for taken, batch in enumerate(self.draw(count * size, clock).split(size, share), 1):
                self.owed -= 1
                self.begun = before, taken
                yield batch
            self.begun = None
        finally:
            self.generator.bit_generator.state = self._drawn_from()
            self.begun = None

    def _drawn_from(self) -> Mapping[str, Any]:
        """The state of the generator behind the batches that were taken."""
        now = self.generator.bit_generator.state
        if self.begun is None:
            return now
        self.generator.bit_generator.state, taken = self.begun
        self.sample(taken * self.pace.batch_size)
        found = self.generator.bit_generator.state
        self.generator.bit_generator.state = now
        return found

    def _fitting(self) -> int:
        """Return how many batches are drawn together: their observations fit into a cache, and no row is absent."""
        assert self.data is not None
        if not self.data.all_valid:
            return 1
        sizes: list[int] = []
        tree_map(
            lambda store: sizes.append(store.take(np.zeros(1, np.int64)).nbytes), self.data.obs
        )
        return max(1, CACHED // max(1, self.pace.batch_size * sum(sizes)))

    def ready(self) -> bool:
        """Return whether it holds a transition."""
        return self.data is not None and self.data.holds(self.span)

    @property
    def span(self) -> int:
        """Return how many steps must be stored, from one on, before it can be drawn."""
        return self.n_step

    def draw(self, size: int, clock: Clock) -> Transitions:
        """A batch of `size` transitions, whether it is due or not."""
        return self.gather(self.sample(size))

    def sample(self, size: int) -> Array:
        """Numbers [size] of steps whose window is complete, drawn uniformly; as the ring numbers them."""
        assert self.data is not None
        data = self.data
        low = data.oldest * data.num_envs
        high = (data.count - self.span + 1) * data.num_envs
        index: Array = self.generator.integers(low, high, size)
        if not data.all_valid:
            unusable = ~data.flat["valid"][index % data.total]
            if unusable.any():
                usable = low + np.flatnonzero(data.flat["valid"][np.arange(low, high) % data.total])
                index[unusable] = self.generator.choice(usable, int(unusable.sum()))
        return index

    def chosen(self, points: Array) -> tuple[Array, Array]:
        """Draw steps where several replays share a batch.

        Args:
            points: [B] in [0, `mass`), one in each of equal shares of what all replays have.

        Returns:
            The steps' numbers [B], and their masses [B].
        """
        return self.sample(len(points)), np.ones(len(points))

    def weights(self, mass: Array, clock: Clock) -> Array | None:
        """Return importance weights [B] of steps with these masses [B]; None where all are alike."""
        return None

    def joined(self, parts: Sequence[Transitions]) -> Transitions:
        """Put batches of this kind together, which replays of several sources gave."""
        return concatenated(parts)

    def gather(self, index: Array, weight: Array | None = None) -> Transitions:
        """Make a batch of the n-step transitions that begin at given steps.

        Args:
            index: [B] numbers of steps, counted since the first that was ever added.
            weight: [B] float32; 1 if none are given.

        Returns:
            Transitions [B] on the buffer's device.
        """
        found = self.look_up(index)
        if weight is None:
            weight = np.ones(len(index), dtype=np.float32)
        share = weight / np.float32(len(index))
        obs = found["obs"]
        next_obs = found["next_obs"]
        rest = found["rest"]
        parts = (
            weight,
            share,
            obs,
            rest["action"],
            rest["reward"],
            rest["discount"],
            next_obs,
            index,
            rest["extras"],
        )
        if self.device.type != "cpu" or self.store not in ON_HOST:
            return Transitions(*sent(parts, self.device))
        made = Transitions(*(tree_map(torch.from_numpy, part) for part in parts))
        made.arrays = Transitions(*parts)  # type: ignore[arg-type]  # arrays in a tensor's place
        return made

    def look_up(self, index: Array) -> State:
        """Copy transitions as they are stored.

        Args:
            index: [B] numbers of steps.

        Returns:
            Arrays [B, ...]: `obs`, `next_obs`, and under `rest` the other fields.
        """
        assert self.data is not None
        return {
            "obs": tree_map(lambda store: store.take(index), self.data.obs),
            **self.outcomes(index)[0],
        }

    def outcomes(self, index: Array) -> tuple[State, Array]:
        """Copy what `look_up` does but for the observations.

        Args:
            index: [B] numbers of steps.

        Returns:
            The arrays [B, ...], and the numbers [B] of the last steps of the windows.
        """
        data = self.data
        assert data is not None
        reward, last, discount = data.window(index, self.n_step, self.gamma)
        begin = index % data.total
        end = begin if last is index else last % data.total
        ended = data.flat["ended"].take(end)
        discount *= ~data.flat["terminated"].take(end)
        next_obs = tree_map(lambda store: store.after(last, ended), data.obs)
        action = data.flat["action"].take(begin, axis=0)
        extras = tree_map(lambda array: array.take(begin, axis=0), data.flat["extras"])
        rest = {"action": action, "reward": reward, "discount": discount, "extras": extras}
        return {"next_obs": next_obs, "rest": rest}, last

    def _slots(self, num_envs: int) -> int:
        slots = self.capacity // num_envs
        if (
            slots < self.span + 1
        ):  # of two steps that follow each other one at least holds a transition
            each = f" for each of {self.sources} actors" if self.sources > 1 else ""
            raise UsageError(
                f"a replay of {self.capacity * self.sources} steps is too small for {num_envs} environments{each} and "
                f"{self._needs()}; let buffer_size be {(self.span + 1) * num_envs * self.sources} or more"
            )
        if self.pace.learning_starts < (self.span + 1) * num_envs:
            raise UsageError(
                f"learning_starts is {self.pace.learning_starts}, and {self._needs()} of {num_envs} environments need "
                f"{(self.span + 1) * num_envs} steps or more; give as many, or a smaller num_envs"
            )
        return slots

    def _needs(self) -> str:
        """Say what takes `span` steps."""
        return f"{self.n_step}-step returns"

    def restart(self) -> None:
        """The newest step of every row ends its episode, by truncation."""
        if self.data is not None:
            self.data.end()

    def state_dict(self) -> State:
        """The arrays in it are the buffer's own, as with torch's modules: store them before the next `add`."""
        return {
            "made": self.made,
            "added": self.added,
            "owed": self.owed,
            "generator": self._drawn_from(),
            "data": None if self.data is None else self.data.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.added = state["added"]
        self.owed = state["owed"]
        self.generator.bit_generator.state = state["generator"]
        self.data = None if state["data"] is None else Ring.load(state["data"], self.store)
