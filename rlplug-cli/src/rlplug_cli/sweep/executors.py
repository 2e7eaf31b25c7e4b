"""The local machine as a place that runs tasks, and the protocol that other places (`ray_place`) implement."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from rlplug_cli.mlflow.process_guard import kill_tree
from rlplug_cli.sweep.task import guard_command
from rlplug_core.config import hold_directory, inheritable_locks, open_regular


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
        with hold_directory(log.parent) as logs, open_regular(logs / log.name, "ab") as file:
            process = subprocess.Popen(
                guard_command(words),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
                pass_fds=inheritable_locks(self.lock.fileno()),
            )
        return LocalJob(process)


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
