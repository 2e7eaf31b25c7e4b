"""Carries out tasks, as many at once as the cores allow, and lets none take another down with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlplug_cli.sweep.executors import Job, Place
from rlplug_cli.sweep.manifest import Task
from rlplug_cli.sweep.progress import Standing
from rlplug_cli.sweep.task import log_of, words_of
from rlplug_core.config.files import content
from rlplug_core.errors import Interrupted
from rlplug_core.loop.signals import STOPPING, URGENT

#: Seconds between two looks at what is running.
TICK = 0.2
#: How often a run is started again that was killed by someone else, as by a machine short of memory.
AGAIN = 1


@dataclass
class Entry:
    """A task, how far it is, and how many cores it takes."""

    task: Task
    standing: Standing
    cores: int = 1
    job: Job | None = None
    stopped: bool = False
    starts: int = 0


@dataclass
class TaskPool:
    """The tasks of one directory at one place.

    Attributes:
        size: how many cores there are to share.
        entries: all tasks by name, in the order in which they were added.
    """

    directory: Path
    place: Place
    size: int
    entries: dict[str, Entry] = field(default_factory=dict)
    signal: int = 0

    def add(self, task: Task, values: Mapping[str, Any], cores: int) -> Entry:
        """Take up a task that sets `values`; one that was done before is seen to be done."""
        entry = Entry(
            task, Standing(self.directory / task.name, int(values["total_timesteps"])), cores
        )
        entry.standing.settle()
        self.entries[task.name] = entry
        return entry

    @property
    def working(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.job is not None]

    def room(self, cores: int) -> bool:
        """Return whether a task that takes `cores` may start now: where it fits, or has the place to itself."""
        used = sum(entry.cores for entry in self.working)
        return used == 0 or used + cores <= self.size

    def start(self, entry: Entry) -> None:
        """Begin a task's run, or go on with it."""
        words = words_of(self.directory, entry.task)
        entry.starts += 1
        entry.standing.status = "running"
        entry.job = self.place.start(words, log_of(self.directory, entry.task.name), entry.cores)

    def look(self) -> list[Entry]:
        """The tasks whose process has ended since the last look; one that was killed begins again, once."""
        ended = []
        for entry in self.working:
            assert entry.job is not None
            code = entry.job.code()
            entry.standing.look()
            if code is None:
                continue
            entry.job = None
            status = entry.standing.settle()
            if (
                status in ("killed", "missing")
                and code >= 128
                and not self._halted(entry)
                and entry.starts <= AGAIN
            ):
                self.start(entry)
            else:
                ended.append(entry)
        return ended

    def stop(self, entry: Entry) -> None:
        """Ask a task to save a checkpoint and end."""
        entry.stopped = True
        if entry.job is not None:
            entry.job.stop()

    def kill(self) -> None:
        """End every task at once."""
        for entry in self.working:
            if entry.job is not None:
                entry.job.kill()

    def _halted(self, entry: Entry) -> bool:
        return entry.stopped or bool(self.signal)

    def last_words(self, entry: Entry) -> str:
        """Return why a task failed: what its journal says, or the last line that it printed."""
        if entry.standing.status == "failed" and entry.standing.error:
            return entry.standing.error
        log = log_of(self.directory, entry.task.name)
        said = content(log).decode(errors="replace") if log.exists() else ""
        lines = [line for line in said.splitlines() if line.strip()]
        return (
            lines[-1].removeprefix("rlplug: ") if lines else f"it ended without a word (see {log})"
        )

    @contextmanager
    def at_work(self) -> Iterator[Callable[[], None]]:
        """Around a loop: gives what waits a moment, and ends all tasks when it is left, by a signal too.

        Raises:
            Interrupted: a signal came; every task has saved a checkpoint, but after a second signal.
        """
        pause = threading.Event()

        def wait() -> None:
            pause.wait(TICK)

        def note(number: int, frame: object) -> None:
            if self.signal in URGENT and number in URGENT:
                self.kill()
            self.signal = number

        before = {number: signal.signal(number, note) for number in STOPPING}
        try:
            yield wait
        finally:
            self._finish(wait)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.signal:
            raise Interrupted("stopped; the same command goes on", self.signal)

    def _finish(self, wait: Callable[[], None]) -> None:
        for entry in self.working:
            self.stop(entry)
        while self.working:
            self.look()
            wait()
