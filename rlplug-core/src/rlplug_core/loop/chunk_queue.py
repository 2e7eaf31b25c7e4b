"""Chunks between actors and a learner, limited by the largest policy lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlplug_core.clock import Clock
from rlplug_core.loop.chunks import chunk_state
from rlplug_core.types import Chunk, Episode, State


@dataclass(slots=True)
class Permit:
    """A permit for one chunk: its slot, its actor, and the version of the weights at the time.

    When the chunk arrives, the permit also has the chunk, its number of env steps, and the episodes that ended in it.
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
    holds at a grant, because no more than `max_lag` others are out. A chunk overtakes older ones only if the
    inequality still holds for them. So the bound holds without dropping anything, and an actor that is slower than
    the others makes them wait only if the bound requires it.
    """

    def __init__(self, max_lag: int, slots: int) -> None:
        self.max_lag = max_lag
        self.version = 0
        #: The numbers of the slots that no permit has.
        self.free = list(range(min(slots, max_lag + 1)))
        #: The permits in use, in the order of their grants.
        self.out: list[Permit] = []
        #: The number of permits of each source.
        self.counts: Counter[int] = Counter()

    def grant(self, source: int) -> Permit | None:
        """Return a permit for a chunk of `source`; None if the largest number of permits is in use."""
        if not self.free:
            return None
        self.counts[source] += 1
        self.out.append(Permit(self.free.pop(), source, self.version))
        return self.out[-1]

    def acting(self, source: int) -> list[Permit]:
        """Return the permits of `source` without a chunk so far, oldest first."""
        return [permit for permit in self.out if permit.source == source and permit.chunk is None]

    def next(self) -> Permit | None:
        """Return the first permit with a chunk that may be learned from now."""
        for permit in self.out:
            remaining = [entry for entry in self.out if entry is not permit]
            after = self.version + 1
            in_time = all(
                after + position <= entry.version + self.max_lag
                for position, entry in enumerate(remaining)
            )
            if permit.chunk is not None and in_time:
                return permit
        return None

    def forget_source(self, source: int) -> None:
        """End the permits of a source that was lost."""
        for permit in self.acting(source):
            self.end(permit)

    def end(self, permit: Permit) -> None:
        """Take back a permit and its slot."""
        self.out.remove(permit)
        self.counts[permit.source] -= 1
        self.free.append(permit.slot)


class ChunkQueue:
    """Permits for the actors of a run, and their chunks.

    Args:
        ahead: the most chunks that one actor may be ahead of the learner, for any `max_lag`.
        clock: counts the steps of the chunks that the learner gets.
    """

    def __init__(
        self,
        max_lag: int,
        ahead: int,
        actors: int,
        clock: Clock,
    ) -> None:
        self.permits = Permits(max_lag, ahead * actors)
        self.ahead = ahead
        self.clock = clock
        #: The number of permits that each actor got.
        self.granted = [0] * actors
        self.pending: list[tuple[int, int, Episode]] = []
        #: The permit of the learner's current chunk.
        self.current: Permit | None = None

    @property
    def version(self) -> int:
        return self.permits.version

    def grant(self, ready: Iterable[int]) -> Permit | None:
        """Return a permit for the `ready` actor with the fewest in use, then in total; None if none may be granted."""
        if not self.permits.free:  # there may be many actors, and most calls end here
            return None
        counts = self.permits.counts
        candidates = [rank for rank in ready if counts[rank] < self.ahead]
        if not candidates:
            return None
        permit = self.permits.grant(
            min(candidates, key=lambda rank: (counts[rank], self.granted[rank]))
        )
        if permit is not None:
            self.granted[permit.source] += 1
        return permit

    def receive_chunk(
        self,
        chunk: Chunk,
        count: int,
        episodes: list[Episode],
    ) -> None:
        """Store the chunk of an actor's oldest permit, with `count` env steps and the ends of `episodes`."""
        permit = self.permits.acting(chunk.source)[0]
        permit.chunk = chunk
        permit.count = count
        permit.episodes = episodes

    def take(self) -> list[Chunk]:
        """Return the next chunk that may be learned from, if there is one."""
        permit = self.permits.next()
        if permit is None or permit.chunk is None:
            return []
        self.current = permit
        self.clock.advance(permit.count)
        self.pending += [(self.clock.steps, permit.source, episode) for episode in permit.episodes]
        return [permit.chunk]

    def finish_chunk(self) -> None:
        """End the permit of the learner's chunk, which made the next version."""
        self.permits.version += 1
        if self.current is not None:  # a resumed run may continue in a chunk without a permit
            self.permits.end(self.current)
            self.current = None

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        episodes = self.pending
        self.pending = []
        return episodes

    def state_dict(self) -> State:
        """Return the version and the waiting chunks; no actor may be working on one."""
        waiting = [permit for permit in self.permits.out if permit is not self.current]
        return {"version": self.version, "waiting": [_permit_state(permit) for permit in waiting]}

    def load_state_dict(self, state: State) -> None:
        self.permits.version = state["version"]
        for saved in state["waiting"]:
            chunk = Chunk(**saved["chunk"])
            episodes = [Episode(*fields) for fields in saved["episodes"]]
            permit = self.permits.grant(chunk.source)
            assert permit is not None  # the same run has as many
            permit.version = saved["version"]
            permit.chunk = chunk
            permit.count = saved["count"]
            permit.episodes = episodes


def _permit_state(permit: Permit) -> State:
    """Return a permit with its chunk in the form of a state."""
    assert permit.chunk is not None
    return {
        "version": permit.version,
        "chunk": chunk_state(permit.chunk),
        "count": permit.count,
        "episodes": [episode.plain() for episode in permit.episodes],
    }
