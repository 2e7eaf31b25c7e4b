"""Store the steps of several actors separately, because a row of one actor does not continue a row of another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from rlplug_core.batches import Transitions
from rlplug_core.buffers.joint import Joint
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.protocols import Buffer, SupportsRestart, SupportsSources
from rlplug_core.types import Result, State, Step

B = TypeVar("B")


class BySource(Generic[B]):
    """Stores the steps of each source in a separate buffer, which `make` returns at the first step of the source."""

    def __init__(self, make: Callable[[], Buffer[B]]) -> None:
        self.make = make
        self.parts: dict[int, Buffer[B]] = {}
        #: The source of the last batch.
        self.given: Buffer[B] | None = None

    def of(self, source: int) -> Buffer[B]:
        """Return the buffer of one source."""
        if source not in self.parts:
            self.parts[source] = self.make()
        return self.parts[source]

    def add(self, step: Step, source: int = 0) -> None:
        self.of(source).add(step)

    def batches(self, clock: Clock) -> Iterator[B]:
        for part in self.parts.values():
            for batch in part.batches(clock):
                self.given = part
                yield batch

    def feedback(self, batch: B, result: Result) -> None:
        assert self.given is not None
        self.given.feedback(batch, result)

    def restart(self) -> None:
        """Restart the rows of every source."""
        for source in self.parts:
            self.restart_source(source)

    def restart_source(self, source: int) -> None:
        part = self.of(source)
        if isinstance(part, SupportsRestart):
            part.restart()

    def state_dict(self) -> State:
        return {str(source): part.state_dict() for source, part in self.parts.items()}

    def load_state_dict(self, state: State) -> None:
        for source, saved in state.items():
            self.of(int(source)).load_state_dict(saved)


class SourcesReplay:
    """A ring of steps for each source, and batches at the pace of all their steps.

    The rows of a batch come from all rings (`Joint`), in proportion to their numbers of steps or their priorities.
    So every step has the same probability and weight as in one ring with all steps.

    Args:
        whole: an empty replay of any kind; the rings share its capacity.
        sources: the number of sources; they are numbered from 0.
    """

    def __init__(self, whole: ReplayBuffer, sources: int) -> None:
        self.pace = whole.pace
        self.generator = whole.generator
        self.rings = [copy.deepcopy(whole) for _ in range(sources)]
        for ring, generator in zip(self.rings, whole.generator.spawn(sources), strict=True):
            ring.capacity = whole.capacity // sources
            ring.generator = generator
            ring.sources = sources
        self.joint = Joint(self.rings, self.generator)
        self.added = self.due_batches = 0

    def add(self, step: Step, source: int = 0) -> None:
        ring = self.rings[source]
        before = self.added
        held = ring.added
        ring.add(step)
        ring.due_batches = 0
        self.added += ring.added - held
        if self.added >= self.pace.learning_starts:
            self.due_batches += self.pace.gradient_steps * (
                self.added // self.pace.train_freq - before // self.pace.train_freq
            )

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        while self.due_batches and any(ring.ready() for ring in self.rings):
            self.due_batches -= 1
            yield self.joint.draw(self.pace.batch_size, clock)

    def feedback(self, batch: Transitions, result: Result) -> None:
        self.joint.feedback(result)

    def restart(self) -> None:
        """Restart the rows of every source."""
        for ring in self.rings:
            ring.restart()

    def restart_source(self, source: int) -> None:
        self.rings[source].restart()

    def state_dict(self) -> State:
        return {
            "rings": [ring.state_dict() for ring in self.rings],
            "added": self.added,
            "owed": self.due_batches,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        for ring, saved in zip(self.rings, state["rings"], strict=True):
            ring.load_state_dict(saved)
        self.added = state["added"]
        self.due_batches = state["owed"]
        self.generator.bit_generator.state = state["generator"]


def of_sources(
    make: Callable[[], Buffer[Any]],
    sources: int,
) -> SupportsSources:
    """Return a buffer for several sources: the result of `make` if it separates sources, else a `BySource`."""
    made = make()
    if isinstance(made, SupportsSources):
        return made
    if isinstance(made, ReplayBuffer) and sources > 1:
        return SourcesReplay(made, sources)
    return BySource(make)
