"""Decide which chunks may be acted, and learned from in which order, so that no policy lag exceeds its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlplug_core.types import Chunk, Episode


@dataclass(slots=True)
class Permit:
    """A permit for one chunk: where it is written, by whom, and the version at the time.

    Once the chunk is here, so are it, how many env steps it holds, and the episodes that ended in it.
    """

    slot: int
    source: int
    version: int
    chunk: Chunk | None = None
    count: int = 0
    episodes: list[Episode] = field(default_factory=list)


class Permits:
    """Hands out permits; each ends when the learner has learned from its chunk, which makes the next version.

    Let permit i, in the order of their grants, be of version v_i, and the learner at version u. As long as
    u + i <= v_i + max_lag for all i, every chunk can be learned from in its turn with a lag of at most `max_lag`. This
    holds at a grant, because no more than `max_lag` others are out. A chunk that overtakes older ones is taken only
    where it goes on to hold for them. So the bound is kept without dropping anything, and an actor that is slower than
    the others makes them wait only where the bound asks for it.
    """

    def __init__(self, max_lag: int, slots: int) -> None:
        self.max_lag = max_lag
        self.version = 0
        self.free = list(range(min(slots, max_lag + 1)))
        self.out: list[Permit] = []
        #: How many of those each source has.
        self.counts: Counter[int] = Counter()

    def grant(self, source: int) -> Permit | None:
        """A permit for a chunk of `source`, unless as many are out as may be."""
        if not self.free:
            return None
        self.counts[source] += 1
        self.out.append(Permit(self.free.pop(), source, self.version))
        return self.out[-1]

    def acting(self, source: int) -> list[Permit]:
        """The permits of `source` whose chunks are not here yet, oldest first."""
        return [permit for permit in self.out if permit.source == source and permit.chunk is None]

    def next(self) -> Permit | None:
        """The first permit whose chunk is here and may be learned from now."""
        for permit in self.out:
            if permit.chunk is not None and self._bounded(
                other for other in self.out if other is not permit
            ):
                return permit
        return None

    def lost(self, source: int) -> None:
        """The chunks that `source` was working on will never come."""
        for permit in self.acting(source):
            self.end(permit)

    def end(self, permit: Permit) -> None:
        """Take back a permit and its slot."""
        self.out.remove(permit)
        self.counts[permit.source] -= 1
        self.free.append(permit.slot)

    def _bounded(self, permits: Iterable[Permit]) -> bool:
        after = self.version + 1
        return all(
            after + place <= permit.version + self.max_lag for place, permit in enumerate(permits)
        )
