"""Store the steps of several actors separately, because a row of one actor does not continue a row of another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from rlplug_core.batches import Transitions
from rlplug_core.buffers.mixture import ReplayMixture
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.protocols import Buffer, SupportsRestart, SupportsSources
from rlplug_core.types import Result, State, Step

B = TypeVar("B")


class BySource(Generic[B]):
    """Stores the steps of each source in a separate buffer; `make` makes it at the first step of the source."""

    def __init__(self, make: Callable[[], Buffer[B]]) -> None:
        self.make = make
        self.buffers: dict[int, Buffer[B]] = {}
        #: The buffer of the last batch.
        self.last_buffer: Buffer[B] | None = None

    def buffer_of(self, source: int) -> Buffer[B]:
        """Return the buffer of one source."""
        if source not in self.buffers:
            self.buffers[source] = self.make()
        return self.buffers[source]

    def add(self, step: Step, source: int = 0) -> None:
        self.buffer_of(source).add(step)

    def batches(self, clock: Clock) -> Iterator[B]:
        for buffer in self.buffers.values():
            for batch in buffer.batches(clock):
                self.last_buffer = buffer
                yield batch

    def feedback(self, batch: B, result: Result) -> None:
        assert self.last_buffer is not None
        self.last_buffer.feedback(batch, result)

    def restart(self) -> None:
        """Restart the rows of every source."""
        for source in self.buffers:
            self.restart_source(source)

    def restart_source(self, source: int) -> None:
        buffer = self.buffer_of(source)
        if isinstance(buffer, SupportsRestart):
            buffer.restart()

    def state_dict(self) -> State:
        return {str(source): buffer.state_dict() for source, buffer in self.buffers.items()}

    def load_state_dict(self, state: State) -> None:
        for source, saved in state.items():
            self.buffer_of(int(source)).load_state_dict(saved)


class SourcesReplay:
    """A replay for each source, and batches at the pace of all their steps.

    The rows of a batch come from all replays (`ReplayMixture`), in proportion to their numbers of steps or their
    priorities. So every step has the same probability and weight as in one replay with all steps.

    Args:
        replay: an empty replay of any kind; the replays of the sources share its capacity.
        sources: the number of sources; they are numbered from 0.
    """

    def __init__(self, replay: ReplayBuffer, sources: int) -> None:
        self.pace = replay.pace
        self.generator = replay.generator
        self.replays = [copy.deepcopy(replay) for _ in range(sources)]
        for part, generator in zip(self.replays, replay.generator.spawn(sources), strict=True):
            part.capacity = replay.capacity // sources
            part.generator = generator
            part.sources = sources
        self.mixture = ReplayMixture(self.replays, self.generator)
        self.added = self.due_batches = 0

    def add(self, step: Step, source: int = 0) -> None:
        replay = self.replays[source]
        before = self.added
        added_to_replay = replay.added
        replay.add(step)
        replay.due_batches = 0
        self.added += replay.added - added_to_replay
        self.due_batches += self.pace.count_batches(before, self.added)

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        while self.due_batches and any(replay.ready() for replay in self.replays):
            self.due_batches -= 1
            yield self.mixture.draw(self.pace.batch_size, clock)

    def feedback(self, batch: Transitions, result: Result) -> None:
        self.mixture.feedback(result)

    def restart(self) -> None:
        """Restart the rows of every source."""
        for replay in self.replays:
            replay.restart()

    def restart_source(self, source: int) -> None:
        self.replays[source].restart()

    def state_dict(self) -> State:
        return {
            "rings": [replay.state_dict() for replay in self.replays],
            "added": self.added,
            "owed": self.due_batches,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        for replay, saved in zip(self.replays, state["rings"], strict=True):
            replay.load_state_dict(saved)
        self.added = state["added"]
        self.due_batches = state["owed"]
        self.generator.bit_generator.state = state["generator"]


def separate_sources(
    make: Callable[[], Buffer[Any]],
    sources: int,
) -> SupportsSources:
    """Return a buffer that keeps sources apart: that of `make` if it can, else one with a buffer for each source."""
    buffer = make()
    if isinstance(buffer, SupportsSources):
        return buffer
    if isinstance(buffer, ReplayBuffer) and sources > 1:
        return SourcesReplay(buffer, sources)
    return BySource(make)
