"""The chunks between actors and learner, by whatever link: who may act one, and what is learned from next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlplug_core.clock import Clock
from rlplug_core.loop.decoupled import plain
from rlplug_core.loop.lag_limiter import Permit, Permits
from rlplug_core.types import Chunk, Episode, State


class Traffic:
    """Permits for the actors of a run, and the chunks that came of them.

    Args:
        ahead: how many chunks of one actor may be on the way, however large the lag may be.
        clock: counts the steps of what the learner is given.
    """

    def __init__(self, max_lag: int, ahead: int, actors: int, clock: Clock) -> None:
        self.permits = Permits(max_lag, ahead * actors)
        self.ahead = ahead
        self.clock = clock
        #: How many permits each actor was given.
        self.granted = [0] * actors
        self.pending: list[tuple[int, int, Episode]] = []
        #: The permit of the chunk that the learner is at.
        self.current: Permit | None = None

    @property
    def version(self) -> int:
        return self.permits.version

    def grant(self, ready: Iterable[int]) -> Permit | None:
        """A permit for that actor of the `ready` ones which has the fewest chunks on the way, or ever had."""
        if not self.permits.free:  # actors may be many, and most calls end here
            return None
        out = self.permits.counts
        open_ = [rank for rank in ready if out[rank] < self.ahead]
        if not open_:
            return None
        permit = self.permits.grant(min(open_, key=lambda rank: (out[rank], self.granted[rank])))
        if permit is not None:
            self.granted[permit.source] += 1
        return permit

    def arrived(self, chunk: Chunk, count: int, episodes: list[Episode]) -> None:
        """Take in the chunk of an actor's oldest permit: it holds `count` env steps, and the ends of `episodes`."""
        permit = self.permits.acting(chunk.source)[0]
        permit.chunk = chunk
        permit.count = count
        permit.episodes = episodes

    def take(self) -> list[Chunk]:
        """The next chunk that may be learned from, if there is one."""
        permit = self.permits.next()
        if permit is None or permit.chunk is None:
            return []
        self.current = permit
        self.clock.advance(permit.count)
        self.pending += [(self.clock.steps, permit.source, episode) for episode in permit.episodes]
        return [permit.chunk]

    def published(self) -> None:
        """The learner is done with its chunk, which made the next version."""
        self.permits.version += 1
        if (
            self.current is not None
        ):  # a resumed run may be at a chunk that nobody holds a permit for any more
            self.permits.end(self.current)
            self.current = None

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        taken = self.pending
        self.pending = []
        return taken

    def state_dict(self) -> State:
        """The version and the chunks that wait; no actor may be at one."""
        waiting = [permit for permit in self.permits.out if permit is not self.current]
        return {"version": self.version, "waiting": [_stored(permit) for permit in waiting]}

    def load_state_dict(self, state: State) -> None:
        self.permits.version = state["version"]
        for saved in state["waiting"]:
            chunk = Chunk(**saved["chunk"])
            episodes = [Episode(*each) for each in saved["episodes"]]
            permit = self.permits.grant(chunk.source)
            assert permit is not None  # the same run has as many
            permit.version = saved["version"]
            permit.chunk = chunk
            permit.count = saved["count"]
            permit.episodes = episodes


def _stored(permit: Permit) -> State:
    """A permit whose chunk is here, as it is kept."""
    assert permit.chunk is not None
    chunk = plain(permit.chunk)
    episodes = [each.plain() for each in permit.episodes]
    return {"version": permit.version, "chunk": chunk, "count": permit.count, "episodes": episodes}
