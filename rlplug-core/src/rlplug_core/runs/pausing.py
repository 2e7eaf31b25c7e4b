"""Ends a run early: at an env step, or when a signal comes. A resume then gives the same bits as without the stop."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import TypeVar

from rlplug_core.clock import Clock
from rlplug_core.errors import Stopped, UsageError, WorkerFailed, warn
from rlplug_core.loop.events import Runner
from rlplug_core.loop.notices import STOP_NOTICE, say_later
from rlplug_core.loop.sync import Sync
from rlplug_core.plugins.env_base import complete
from rlplug_core.runs.checkpoint import Point
from rlplug_core.runs.messages import interrupted
from rlplug_core.types import State

T = TypeVar("T")


class Pause:
    """Pauses a run at the env step `until`; with None the run trains to its end."""

    def __init__(self, until: int | None) -> None:
        self.until = until
        self.reached = False

    @property
    def reason(self) -> str:
        return f"--until {self.until}" if self.reached else ""

    def check(self, point: Point | None, name: str) -> None:
        """Raise UsageError if the run `name` would continue from a checkpoint at the pause or after it."""
        if self.until is not None and point and point.step >= self.until:
            raise UsageError(
                f"run {name} is at step {point.step:,} already, and --until {self.until} counts all its steps; give "
                "more, or leave it out"
            )

    def stop_at_pause(
        self,
        poll: Callable[[], None],
        clock: Clock,
    ) -> Callable[[], None]:
        """Return a function that polls, and then stops the clock if it has reached the pause."""
        until = self.until
        if until is None:
            return poll

        def poll_until() -> None:
            poll()
            if until <= clock.steps < clock.limit:
                self.reached = clock.stop = True

        return poll_until


class StopSignal:
    """Receives the signal that ends a run; `number` is 0 before it comes.

    Training ends after a checkpoint. The final evaluation has nothing to save, so it ends immediately.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.number = 0
        self._notice = Timer(0.0, warn)  # never starts; `receive` replaces it
        self._ends_immediately = False

    def receive(self, number: int) -> None:
        self.number = number
        self.clock.stop = True
        self._notice = say_later(STOP_NOTICE)
        if self._ends_immediately:
            raise Stopped(f"stopped by signal {number} in the final evaluation", number)

    def cancel_notice(self) -> None:
        self._notice.cancel()

    def run_until(self, work: Callable[[], T]) -> T | None:
        """Call `work` and return its result, or None if a signal comes before its end."""
        self._ends_immediately = True
        try:
            return None if self.number else work()
        except Stopped:
            return None
        finally:
            self._ends_immediately = False

    def check(self, run: Path, status: str, saved: bool = True) -> None:
        """Raise Interrupted if a signal came; `saved` is whether the run has a checkpoint of this step."""
        if self.number:
            raise interrupted(self.number, self.clock.steps, run, saved, status == "finished")


def restarts_envs(runner: Runner) -> bool:
    """Return whether each checkpoint restarts the environments, as --resume-exact asks."""
    return isinstance(runner, Sync) and runner.make_env is not None


def wrapper_state(runner: Runner) -> State:
    """Return the learned state of the training environment's wrappers, such as running means."""
    return complete(runner.actor.env).learned() if isinstance(runner, Sync) else {}


def failure_text(error: BaseException) -> str:
    """Return the traceback of an error; if a worker raised it, after the worker's traceback."""
    details = [f"{error.details}\n"] if isinstance(error, WorkerFailed) else []
    return "".join(details + traceback.format_exception(error))
