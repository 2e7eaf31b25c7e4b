"""The only source of time: env steps, updates, progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rlplug_core.types import State


class Clock:
    """Counts valid env steps (advanced by actors) and updates (advanced by the runner).

    Schedules are pure functions of `progress`, which runs over `total`; the run ends at `limit`, which is the total
    unless a resumed run goes beyond it. Controllers may set `scale` (multiplies every step size) and `stop`.
    """

    __slots__ = ("limit", "scale", "steps", "stop", "total", "updates")

    def __init__(self, total: int, steps: int = 0, updates: int = 0) -> None:
        self.total = total
        self.limit = total
        self.steps = steps
        self.updates = updates
        self.scale = 1.0
        self.stop = False

    def advance(self, count: int) -> None:
        """Count `count` more env steps."""
        self.steps += count

    @property
    def done(self) -> bool:
        return self.stop or self.steps >= self.limit

    @property
    def progress(self) -> float:
        """The share of the total that has passed, in [0, 1]."""
        return min(1.0, self.steps / self.total)

    def progress_before(self, count: int) -> float:
        """The progress `count` env steps ago, in [0, 1]."""
        return min(1.0, max(0, self.steps - count) / self.total)

    def state_dict(self) -> State:
        return {
            "total": self.total,
            "limit": self.limit,
            "steps": self.steps,
            "updates": self.updates,
            "scale": self.scale,
        }

    def load_state_dict(self, state: State) -> None:
        self.total, self.limit, self.steps = state["total"], state["limit"], state["steps"]
        self.updates, self.scale = state["updates"], state["scale"]


class Counters(Protocol):
    """Integers that processes may share: a list, or a view of shared memory."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __iter__(self) -> Iterator[int]: ...


class SharedClock(Clock):
    """One worker's view of a clock with a slot per worker, summed without a lock.

    Args:
        total: env steps that schedules run over.
        slots: the env steps of each worker; every worker writes its own alone.
        flags: one integer, not 0 when all shall stop.
        rank: whose slot is ours.
        scales: one number that multiplies every step size; controllers set it in the whole run's clock, not here.
    """

    __slots__ = ("flags", "rank", "scales", "slots")

    def __init__(
        self, total: int, slots: Counters, flags: Counters, rank: int, scales: Sequence[float] = (1.0,)
    ) -> None:
        self.slots, self.flags, self.rank, self.scales = slots, flags, rank, scales
        super().__init__(total, sum(slots))

    def advance(self, count: int) -> None:
        self.slots[self.rank] += count
        self.steps = sum(self.slots)

    @property
    def done(self) -> bool:
        return self.steps >= self.limit or bool(self.flags[0])

    @property
    def stop(self) -> bool:
        return bool(self.flags[0])

    @stop.setter
    def stop(self, value: bool) -> None:
        if value:
            self.flags[0] = 1

    @property
    def scale(self) -> float:
        return self.scales[0]

    @scale.setter
    def scale(self, value: float) -> None:
        """Nothing: a worker follows."""


def due(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; `every` 0 means never."""
    return every > 0 and before // every != after // every
