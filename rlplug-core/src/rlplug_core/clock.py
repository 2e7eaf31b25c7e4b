"""The only source of time: env steps, updates, progress."""

from __future__ import annotations

from collections.abc import MutableSequence

from rlplug_core.types import State


class Clock:
    """Counts valid env steps (advanced by actors) and updates (advanced by the runner).

    Schedules are pure functions of `progress`. Controllers may set `scale` (multiplies every step size) and `stop`.
    """

    __slots__ = ("scale", "steps", "stop", "total", "updates")

    def __init__(self, total: int, steps: int = 0, updates: int = 0) -> None:
        self.total = total
        self.steps = steps
        self.updates = updates
        self.scale = 1.0
        self.stop = False

    def advance(self, count: int) -> None:
        """Count `count` more env steps."""
        self.steps += count

    @property
    def done(self) -> bool:
        return self.stop or self.steps >= self.total

    @property
    def progress(self) -> float:
        """The share of the total that has passed, in [0, 1]."""
        return min(1.0, self.steps / self.total)

    def state_dict(self) -> State:
        return {"total": self.total, "steps": self.steps, "updates": self.updates, "scale": self.scale}

    def load_state_dict(self, state: State) -> None:
        self.total, self.steps = state["total"], state["steps"]
        self.updates, self.scale = state["updates"], state["scale"]


class SharedClock(Clock):
    """One worker's view of a clock with a slot per worker, summed without a lock.

    `slots` is any int64 sequence that the workers share; each worker writes its own slot alone.
    """

    __slots__ = ("rank", "slots")

    def __init__(self, total: int, slots: MutableSequence[int], rank: int) -> None:
        super().__init__(total, sum(slots))
        self.slots = slots
        self.rank = rank

    def advance(self, count: int) -> None:
        self.slots[self.rank] += count
        self.steps = sum(self.slots)


def due(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; `every` 0 means never."""
    return every > 0 and before // every != after // every
