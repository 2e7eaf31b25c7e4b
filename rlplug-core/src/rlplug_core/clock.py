"""The only source of time: env steps, updates, progress."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rlplug_core.types import State


class Clock:
    """Counts valid env steps (advanced by actors) and updates (advanced by the runner).

    Schedules are pure functions of `progress`, the fraction of `total`. The run ends at `limit`, which is equal to the
    total unless a resumed run gets more steps. Controllers may set `scale` (multiplies every learning rate) and `stop`.
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
        """Return the fraction of the total that has passed, in [0, 1]."""
        return min(1.0, self.steps / self.total)

    def progress_before(self, count: int) -> float:
        """Return the progress `count` env steps ago, in [0, 1]."""
        return min(1.0, max(0, self.steps - count) / self.total)

    def with_updates(self, updates: int, share: float = 1.0) -> Clock:
        """Return a copy for one of several learners of a run, with this learner's count of updates.

        Args:
            updates: number of updates of the learner.
            share: the fraction of the run's env steps that the learner sees.
        """
        clock = PartClock(self.total, self.steps, updates, share)
        clock.limit = self.limit
        clock.scale = self.scale
        clock.stop = self.stop
        return clock

    def of_part(self, share: float) -> Clock:
        """Return a copy for the agent of one of several learners, with this agent's env steps and the run's progress.

        Args:
            share: the fraction of the run's env steps that the agent takes.
        """
        return AgentClock(self, share)

    def state_dict(self) -> State:
        return {
            "total": self.total,
            "limit": self.limit,
            "steps": self.steps,
            "updates": self.updates,
            "scale": self.scale,
        }

    def load_state_dict(self, state: State) -> None:
        self.total = state["total"]
        self.limit = state["limit"]
        self.steps = state["steps"]
        self.updates = state["updates"]
        self.scale = state["scale"]


class PartClock(Clock):
    """The clock of a learner that sees a `share` of the run's env steps; `progress_before` takes a count of these."""

    __slots__ = ("share",)

    def __init__(
        self,
        total: int,
        steps: int,
        updates: int,
        share: float,
    ) -> None:
        super().__init__(total, steps, updates)
        self.share = share

    def progress_before(self, count: int) -> float:
        return super().progress_before(round(count / self.share))


class AgentClock(Clock):
    """The clock of an agent that takes a `share` of the env steps: `steps` counts these, `progress` is the run's."""

    __slots__ = ("run_progress",)

    def __init__(self, clock: Clock, share: float) -> None:
        super().__init__(clock.total, round(clock.steps * share), clock.updates)
        self.limit = clock.limit
        self.scale = clock.scale
        self.stop = clock.stop
        self.run_progress = clock.progress

    @property
    def progress(self) -> float:
        return self.run_progress


class Steering:
    """The clock that a controller gets: it can read everything, and set `scale` and `stop`.

    Setting `stop` to False has no effect, because SIGTERM, a limit or another controller may have set it.

    Attributes:
        stopped: whether a controller set `stop` here; SIGTERM or a limit does not count.
    """

    __slots__ = ("_clock", "stopped")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.stopped = False

    @property
    def total(self) -> int:
        return self._clock.total

    @property
    def limit(self) -> int:
        return self._clock.limit

    @property
    def steps(self) -> int:
        return self._clock.steps

    @property
    def updates(self) -> int:
        return self._clock.updates

    @property
    def progress(self) -> float:
        return self._clock.progress

    @property
    def scale(self) -> float:
        return self._clock.scale

    @scale.setter
    def scale(self, value: float) -> None:
        if not 0 <= value < inf:
            raise ValueError(
                f"scale is {value}; learning rates are multiplied by it, so it must be finite and at least 0"
            )
        self._clock.scale = float(value)

    @property
    def stop(self) -> bool:
        return self._clock.stop

    @stop.setter
    def stop(self, value: bool) -> None:
        self.stopped = self.stopped or bool(value)
        self._clock.stop = self._clock.stop or self.stopped


class Signals(Protocol):
    """The signals of the whole run to its workers; a `Clock` has them."""

    @property
    def stop(self) -> bool: ...
    @property
    def scale(self) -> float: ...


class Counters(Protocol):
    """Integers that processes may share: a list, or a view of shared memory."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __iter__(self) -> Iterator[int]: ...


class SharedClock(Clock):
    """The clock of one worker: it counts in its own slot, and reads the sum of all slots without a lock.

    Args:
        total: env steps of the schedules.
        slots: the env steps of each worker; every worker writes only its own.
        signals: `stop` and `scale` of the whole run; controllers set both in its clock.
        rank: the index of this worker's slot.
    """

    __slots__ = ("rank", "signals", "slots")

    def __init__(
        self,
        total: int,
        slots: Counters,
        signals: Signals,
        rank: int,
    ) -> None:
        self.slots = slots
        self.signals = signals
        self.rank = rank
        self.total = self.limit = total
        self.steps = sum(slots)
        self.updates = 0

    def advance(self, count: int) -> None:
        self.slots[self.rank] += count
        self.steps = sum(self.slots)

    @property
    def stop(self) -> bool:  # type: ignore[override]  # a worker cannot set it
        return self.signals.stop

    @property
    def scale(self) -> float:  # type: ignore[override]
        return self.signals.scale

    def load_state_dict(self, state: State) -> None:
        """Load the counts; `scale` stays that of the whole run."""
        self.total = state["total"]
        self.limit = state["limit"]
        self.steps = state["steps"]
        self.updates = state["updates"]


def due(before: int, after: int, every: int) -> bool:
    """Return whether a multiple of `every` is in (before, after]; `every` 0 means never."""
    return every > 0 and before // every != after // every
