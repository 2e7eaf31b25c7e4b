"""Runs tasks, as many at once as the cores allow; one that fails does not stop the others."""

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
from rlplug_cli.sweep.progress import RunProgress
from rlplug_cli.sweep.task import command_words, log_path
from rlplug_core.config import file_content
from rlplug_core.errors import Interrupted
from rlplug_core.loop import STOPPING, URGENT

#: Seconds between two checks of the running tasks.
TICK = 0.2
#: Restarts of a run that something else killed, such as a machine short of memory.
RESTARTS = 1


@dataclass
class Entry:
    """A task with its progress, the number of cores that it needs, and further words for its next start."""

    task: Task
    progress: RunProgress
    cores: int = 1
    job: Job | None = None
    stopped: bool = False
    starts: int = 0
    extra: tuple[str, ...] = ()


@dataclass
class TaskPool:
    """The tasks of one directory at one place.

    Attributes:
        size: the number of cores to share.
        entries: all tasks by name, in the order of their addition.
        signal: the last signal that this process got, or 0.
    """

    directory: Path
    place: Place
    size: int
    entries: dict[str, Entry] = field(default_factory=dict)
    signal: int = 0

    def add(self, task: Task, values: Mapping[str, Any], cores: int) -> Entry:
        """Add a task with the option values `values`, and return its entry with the current status."""
        progress = RunProgress(self.directory / task.name, int(values["total_timesteps"]))
        progress.read_status()
        self.entries[task.name] = Entry(task, progress, cores)
        return self.entries[task.name]

    @property
    def working(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.job is not None]

    @property
    def share(self) -> float:
        """Return the part of all tasks that is done, from 0 to 1."""
        done = sum(entry.progress.share for entry in self.entries.values())
        return done / max(1, len(self.entries))

    def has_room(self, cores: int) -> bool:
        """Return whether a task that needs `cores` may start now; a task that never fits runs with no other."""
        used = sum(entry.cores for entry in self.working)
        return used == 0 or used + cores <= self.size

    def start(self, entry: Entry) -> None:
        """Start a task's run, or resume it."""
        words = [*command_words(self.directory, entry.task), *entry.extra]
        entry.starts += 1
        entry.progress.status = "running"
        log = log_path(self.directory, entry.task.name)
        entry.job = self.place.start(words, log, entry.cores)

    def poll(self) -> list[Entry]:
        """Return the tasks that have ended since the last call; restart a killed one, once."""
        ended = []
        for entry in self.working:
            assert entry.job is not None
            code = entry.job.code()
            entry.progress.read_new_records()
            if code is None:
                continue
            entry.job = None
            status = entry.progress.read_status()
            # A finished run may lack its tables and mirrors.
            unfinished = status in ("killed", "waiting", "finished") and not entry.progress.is_over
            killed = unfinished and code >= 128  # as a shell reports signals
            stopping = entry.stopped or bool(self.signal)
            if killed and not stopping and entry.starts <= RESTARTS:
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

    def failure_reason(self, entry: Entry) -> str:
        """Return why a task failed: the error in its journal, or the last line of its output."""
        if entry.progress.status == "failed" and entry.progress.error:
            return entry.progress.error
        log = log_path(self.directory, entry.task.name)
        text = file_content(log).decode(errors="replace") if log.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            return f"it ended without any output (see {log})"
        return lines[-1].removeprefix("rlplug: ")

    @contextmanager
    def signals(
        self,
        notify: Callable[[str], None] = lambda text: None,
    ) -> Iterator[Callable[[], None]]:
        """Handle signals during a loop; yield a function that waits a moment. All tasks end when the block ends.

        Args:
            notify: gets a sentence when a signal arrives.

        Raises:
            Interrupted: a signal arrived; every task has saved a checkpoint unless a second signal arrived.
        """
        pause = threading.Event()

        def wait() -> None:
            pause.wait(TICK)

        def handle(number: int, frame: object) -> None:
            if self.signal in URGENT and number in URGENT:
                self.kill()
            elif not self.signal:
                notify(
                    "stopping: each run saves a checkpoint first; press Ctrl-C again to kill them"
                )
            self.signal = number

        handlers = {number: signal.signal(number, handle) for number in STOPPING}
        try:
            yield wait
        finally:
            self._stop_all(wait)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.signal:
            raise Interrupted("stopped; to continue, type the same command again", self.signal)

    def _stop_all(self, wait: Callable[[], None]) -> None:
        """Stop every task that runs, and wait until all have ended."""
        for entry in self.working:
            self.stop(entry)
        while self.working:
            self.poll()
            wait()
