"""One buffer for every actor, so that no row of one is taken to follow another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from rlplug_core.clock import Clock
from rlplug_core.protocols import Buffer, SupportsRestart
from rlplug_core.types import Result, State, Step

B = TypeVar("B")


class BySource(Generic[B]):
    """Keeps the steps of each source in a buffer of its own; `make` makes one when a source is first heard of."""

    def __init__(self, make: Callable[[], Buffer[B]]) -> None:
        self.make = make
        self.parts: dict[int, Buffer[B]] = {}
        #: Whose batch was handed out last.
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
        """Begin the rows of every source anew."""
        for source in self.parts:
            self.restart_source(source)

    def restart_source(self, source: int) -> None:
        """Begin the rows of one source anew: what it sends next does not follow what it sent last."""
        part = self.of(source)
        if isinstance(part, SupportsRestart):
            part.restart()

    def state_dict(self) -> State:
        return {str(source): part.state_dict() for source, part in self.parts.items()}

    def load_state_dict(self, state: State) -> None:
        for source, saved in state.items():
            self.of(int(source)).load_state_dict(saved)
