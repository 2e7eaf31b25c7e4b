"""Uniform replay: stores the last `capacity` steps and samples batches of n-step transitions from them.

n-step sums are computed when a batch is sampled, so every step is stored at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.batches import Transitions, concatenate, from_arrays
from rlplug_core.buffers.joint_steps import joint_step
from rlplug_core.buffers.learner_extras import LearnerExtras
from rlplug_core.buffers.ring import Ring
from rlplug_core.buffers.storage import Store, send
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, throughout
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result, State, Step, tree_map

#: The kinds of storage in host memory.
ON_HOST = ("memory", "disk")
#: Bytes of observations that fit into a processor's cache; batches are sampled together up to this size.
CACHE_BYTES = 2**18


@dataclass(frozen=True)
class ReplaySchedule:
    """The size and number of batches: after `learning_starts` steps, `gradient_steps` batches every `train_freq` steps.

    Attributes:
        batch_size: transitions per batch.
        train_freq: env steps between updates.
        gradient_steps: batches per update.
        learning_starts: env steps before the first batch.
    """

    batch_size: int
    train_freq: int
    gradient_steps: int
    learning_starts: int

    def count_batches(self, before: int, after: int) -> int:
        """Return the number of batches to draw when the count of env steps changes from `before` to `after`."""
        if after < self.learning_starts:
            return 0
        return self.gradient_steps * (after // self.train_freq - before // self.train_freq)


class ReplayBuffer:
    """A ring of steps. Batches are sampled uniformly from the steps with a complete n-step window.

    Args:
        capacity: number of transitions to keep.
        pace: size and number of batches.
        n_step: number of rewards in the sum of a transition, fewer if the episode ends.
        gamma: discount per step, a number or a function of the clock's progress.
        seeds: seeds of the draws.
        device: device of the batches.
        store: storage of the observations: `memory`, `disk`, or a torch device such as `cuda`.
        together: the most batches of one update that are sampled together and then split; 1 if a batch may depend on
            the feedback for the one before.
        agents: number of agents of a world if their rows form one joint transition, as `joint_step` says; 0 if each row
            is a separate transition. `capacity` and batches count joint transitions, the other numbers env steps.
    """

    def __init__(
        self,
        capacity: int,
        pace: ReplaySchedule,
        n_step: int,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device | None = None,
        store: Store = "memory",
        together: int = 1,
        agents: int = 0,
    ) -> None:
        self.capacity = capacity
        self.pace = pace
        self.n_step = n_step
        #: The schedule of `gamma`, which is the discount of the current batch.
        self.discount = throughout(gamma)
        self.gamma = self.discount(0.0)
        self.generator = seeds.generator()
        self.device = device or torch.device("cpu")
        self.store = store
        self.agents = agents
        self.together = together if self.device.type == "cpu" and store in ON_HOST else 1
        if store.startswith("cuda") and not torch.cuda.is_available():
            raise UsageError(
                f"buffer_storage '{store}' is not available to this torch; use --buffer-storage memory or disk"
            )
        self.added = self.due_batches = 0
        #: The number of actors that share the capacity.
        self.sources = 1
        #: The largest mass (priority ** alpha) so far, which new transitions get; only a prioritized buffer changes it.
        self.largest = 1.0
        #: While batches are split from one sample: the generator's state before it, and the number of batches so far.
        self.split_sample: tuple[Any, int] | None = None
        self.data: Ring | None = None
        self.learner_extras: LearnerExtras | None = None

    def with_extras(self, **values: ArrayLike) -> Self:
        """Give every step extras that the learner replaces by `Result.extras`; return this buffer.

        Args:
            values: the values of new steps, by name: a number, or an array [...].

        Raises:
            PluginError: the buffer itself sets an extra of this name.
        """
        self.learner_extras = LearnerExtras(values)
        self.together = 1  # a batch may contain extras that come from the batch before it
        return self

    @property
    def settings(self) -> dict[str, float]:
        """Return the options, by name, that must be the same when this state is loaded."""
        return {"buffer_size": self.capacity, "n_step": self.n_step}

    @property
    def count(self) -> int:
        """Return the number of vector steps that were added."""
        return self.data.count if self.data is not None else 0

    @property
    def mass(self) -> float:
        """Return the sum of the masses of all steps, 1 each.

        If each of several actors has a replay, a batch takes from each in proportion to this sum.
        """
        if self.data is None:
            return 0.0
        return float(min(self.data.count, self.data.slots) * self.data.num_envs)

    def add(self, step: Step, source: int = 0) -> None:
        stored = joint_step(step, self.agents) if self.agents else step
        if self.learner_extras is not None:
            stored = self.learner_extras.add_to(stored)
        if self.data is None:
            self.data = Ring.like(stored, self._slots(len(stored.valid)), self.store)
        self.data.write(stored)
        self._advance(int(np.count_nonzero(step.valid)))

    def _advance(self, steps: int) -> None:
        """Count new env steps, and the batches to draw after them."""
        before = self.added
        self.added = before + steps
        self.due_batches += self.pace.count_batches(before, self.added)

    def batches(self, clock: Clock) -> Iterable[Transitions]:
        return self._yield_due(clock) if self.due_batches else ()

    def feedback(self, batch: Transitions, result: Result) -> None:
        """Store the learner's extras; uniform replay has no priorities."""
        if result.extras:
            self._write_extras(batch, result.extras)

    def _write_extras(
        self,
        batch: Transitions,
        extras: Mapping[str, Tensor | Array],
    ) -> None:
        """Store the learner's extras of a batch; skip steps that were evicted since."""
        numbers = self._step_numbers(batch)
        (self.learner_extras or LearnerExtras({})).check(extras, len(numbers))
        stored = self._is_stored(numbers)
        stores, position = self._extras_at(numbers[stored])
        for name, value in extras.items():
            stores[name][position] = to_host(value)[stored]

    def _step_numbers(self, batch: Transitions) -> Array:
        """Return the numbers of a batch's steps, one for each row."""
        return to_host(batch.index)

    def _is_stored(self, index: Array) -> Array:
        """Return a mask [B] of the transitions with these numbers that are still stored."""
        assert self.data is not None
        return index >= self.data.oldest * self.data.num_envs

    def _extras_at(self, numbers: Array) -> tuple[dict[str, Array], Array]:
        """Return the stored extras by name, and the positions of these steps in them."""
        assert self.data is not None
        return self.data.flat["extras"], numbers % self.data.total

    def _yield_due(self, clock: Clock) -> Iterator[Transitions]:
        while self.due_batches and self.ready():
            self.gamma = self.discount(clock.progress)
            count = min(self.due_batches, self.together)
            if count > 1:
                count = min(count, self._batches_per_sample())
            if count > 1:
                yield from self._draw_together(count, clock)
            else:
                self.due_batches -= 1
                yield self.draw(self.pace.batch_size, clock)

    def _draw_together(
        self,
        count: int,
        clock: Clock,
    ) -> Iterator[Transitions]:
        """Yield batches from one large sample, the same as from separate samples; draw unused batches again later."""
        size = self.pace.batch_size
        before = self.generator.bit_generator.state
        share = torch.from_numpy(np.ones(size, np.float32) / np.float32(size))
        try:
            for taken, batch in enumerate(self.draw(count * size, clock).split(size, share), 1):
                self.due_batches -= 1
                self.split_sample = before, taken
                yield batch
            self.split_sample = None
        finally:
            self.generator.bit_generator.state = self._generator_state()
            self.split_sample = None

    def _generator_state(self) -> Mapping[str, Any]:
        """Return the state of the generator after the batches that were yielded so far."""
        current = self.generator.bit_generator.state
        if self.split_sample is None:
            return current
        self.generator.bit_generator.state, taken = self.split_sample
        self.sample(taken * self.pace.batch_size)
        after_taken = self.generator.bit_generator.state
        self.generator.bit_generator.state = current
        return after_taken

    def _batches_per_sample(self) -> int:
        """Return the most batches to sample together: as many as fit into a cache; 1 if some rows are invalid."""
        assert self.data is not None
        if not self.data.all_valid:
            return 1
        sizes: list[int] = []
        tree_map(
            lambda store: sizes.append(store.take(np.zeros(1, np.int64)).nbytes), self.data.obs
        )
        return max(1, CACHE_BYTES // max(1, self.pace.batch_size * sum(sizes)))

    def ready(self) -> bool:
        """Return whether the buffer has a complete transition."""
        return self.data is not None and self.data.has_window(self.span)

    @property
    def span(self) -> int:
        """Return the number of steps of a transition; all must be stored before it can be sampled."""
        return self.n_step

    def draw(self, size: int, clock: Clock) -> Transitions:
        """Draw a batch of `size` transitions."""
        return self.gather(self.sample(size))

    def sample(self, size: int) -> Array:
        """Draw uniformly the numbers [size] of steps with a complete window, counted from the first step ever added."""
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

    def choose(self, points: Array) -> tuple[Array, Array]:
        """Sample this replay's part of a batch; the replays of other actors fill the rest.

        Args:
            points: [B] points in [0, `mass`), one in each of B equal intervals.

        Returns:
            The steps' numbers [B], and their masses (priority ** alpha) [B].
        """
        return self.sample(len(points)), np.ones(len(points))

    def weights(self, mass: Array, clock: Clock) -> Array | None:
        """Return importance weights [B] of steps with these masses [B]; None if all are equal."""
        return None

    def join(self, parts: Sequence[Transitions]) -> Transitions:
        """Concatenate batches from the replays of several actors."""
        return concatenate(parts)

    def gather(self, index: Array, weight: Array | None = None) -> Transitions:
        """Make a batch of the n-step transitions that start at given steps.

        Args:
            index: [B] numbers of steps, counted from the first step ever added.
            weight: [B] float32; default 1.

        Returns:
            Transitions [B] on the buffer's device.
        """
        fields = self.look_up(index)
        if weight is None:
            weight = np.ones(len(index), dtype=np.float32)
        rest = fields["rest"]
        columns = (
            weight,
            weight / np.float32(len(index)),
            fields["obs"],
            rest["action"],
            rest["reward"],
            rest["discount"],
            fields["next_obs"],
            index,
            rest["extras"],
        )
        if self.device.type != "cpu" or self.store not in ON_HOST:
            return Transitions(*send(columns, self.device))
        return from_arrays(Transitions, columns)

    def look_up(self, index: Array) -> State:
        """Copy stored transitions.

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
        """Copy the entries of `look_up` except `obs`.

        Args:
            index: [B] numbers of steps.

        Returns:
            The arrays [B, ...], and the numbers [B] of the last steps of the windows.
        """
        data = self.data
        assert data is not None
        reward, last, discount = data.window(index, self.n_step, self.gamma)
        start = index % data.total
        end = start if last is index else last % data.total
        ended = data.flat["ended"].take(end)
        discount *= ~data.flat["terminated"].take(end)
        next_obs = tree_map(lambda store: store.after(last, ended), data.obs)
        action = data.flat["action"].take(start, axis=0)
        extras = tree_map(lambda array: array.take(start, axis=0), data.flat["extras"])
        rest = {"action": action, "reward": reward, "discount": discount, "extras": extras}
        return {"next_obs": next_obs, "rest": rest}, last

    def _slots(self, num_envs: int) -> int:
        """Return the number of vector steps to store; raise UsageError if no transition or batch would fit."""
        slots = self.capacity // num_envs
        needed = (self.span + 1) * num_envs  # at least one of two consecutive steps is a transition
        if slots < self.span + 1:
            of_actor = f" for each of {self.sources} actors" if self.sources > 1 else ""
            raise UsageError(
                f"a replay of {self.capacity * self.sources} steps is too small for {num_envs} environments{of_actor} "
                f"and {self._window_text()}; set buffer_size to {needed * self.sources} or more"
            )
        if self.pace.learning_starts < needed:
            raise UsageError(
                f"learning_starts is {self.pace.learning_starts}, and {self._window_text()} of {num_envs} "
                f"environments need {needed} steps or more; set it to at least that, or reduce num_envs"
            )
        return slots

    def _window_text(self) -> str:
        """Return the name of a window of `span` steps in messages."""
        return f"{self.n_step}-step returns"

    def restart(self) -> None:
        """Mark the newest step of every row as truncated, so that later steps do not follow it."""
        if self.data is not None:
            self.data.end()

    def state_dict(self) -> State:
        """Return the state. Like that of torch modules, its arrays are not copies: store them before the next `add`."""
        return {
            "made": self.settings,
            "added": self.added,
            "owed": self.due_batches,
            "generator": self._generator_state(),
            "data": None if self.data is None else self.data.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.added = state["added"]
        self.due_batches = state["owed"]
        self.generator.bit_generator.state = state["generator"]
        self.data = None if state["data"] is None else Ring.load(state["data"], self.store)
