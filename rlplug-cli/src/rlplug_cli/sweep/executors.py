"""The local machine as a place that runs tasks, and the protocol that other places (`ray_place`) implement."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from rlplug_cli.mlflow.process_guard import kill_tree
from rlplug_cli.sweep.task import start_with_guard
from rlplug_core.config import inheritable_locks


class Job(Protocol):
    """A command that a place has started."""

    def code(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        ...

    def stop(self) -> None:
        """Ask the command to save a checkpoint and end."""
        ...

    def kill(self) -> None:
        """End the command at once."""
        ...


class Place(Protocol):
    """A machine or a cluster that runs tasks."""

    def start(self, words: Sequence[str], log: Path, cores: int) -> Job:
        """Start `rlplug` with `words` on `cores` cores; its output is appended to the file `log`."""
        ...


class LocalPlace:
    """This machine: each task is a process under a guard, which stops it when this process ends for any reason.

    The guards keep `lock` open, so the sweep stays locked until the last task has stopped.
    """

    def __init__(self, lock: IO[bytes]) -> None:
        self.lock = lock

    def start(self, words: Sequence[str], log: Path, cores: int) -> LocalJob:
        return LocalJob(start_with_guard(words, log, inheritable_locks(self.lock.fileno())))


class LocalJob:
    """A process under its guard."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def code(self) -> int | None:
        code = self.process.poll()
        if code is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return code

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # the guard then stops the run

    def kill(self) -> None:
        kill_tree(self.process)
