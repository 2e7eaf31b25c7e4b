"""Places where tasks are carried out: each starts the command of a task and says how it ended.

This machine is one place; another (`ray_place`) is a class with the same method.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from rlplug_cli.sweep.task import PATIENCE
from rlplug_core.config.files import opened


class Job(Protocol):
    """A command that a place has started."""

    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to save a checkpoint and end."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Place(Protocol):
    """Somewhere to carry out tasks."""

    def start(self, words: Sequence[str], log: Path, cores: int) -> Job:
        """Start `rlplug` with `words`, which keeps `cores` busy; what it prints is added to the file `log`."""
        ...


class Here:
    """This machine: each task is a process under a guard, which stops it when this process is gone, however it ends.

    The guards keep `lock` open, so that nobody takes up the sweep before the last task has stopped.
    """

    def __init__(self, lock: IO[bytes]) -> None:
        self.lock = lock

    def start(self, words: Sequence[str], log: Path, cores: int) -> LocalJob:
        log.parent.mkdir(exist_ok=True)
        python = [sys.executable, "-P", "-m"]
        command = [
            *python,
            "rlplug_cli.mlflow.process_guard",
            str(PATIENCE),
            *python,
            "rlplug_cli",
            *words,
        ]
        with opened(log, "ab") as file:
            return LocalJob(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=(self.lock.fileno(),),
                )
            )


class LocalJob:
    """A process under its guard."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def code(self) -> int | None:
        found = self.process.poll()
        if found is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return found

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # which the guard takes as the end of this process

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
