"""Environments that cannot save their state, or that log their calls to a file."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from multiprocessing import parent_process
from pathlib import Path

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, State, Timestep


class CannotSave(Chain):
    """A chain that cannot save its state."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = replace(self.spec, inexact="CannotSave: a test")

    def state_dict(self) -> State:
        return {"inexact": self.spec.inexact}


class LogsSeeds(CannotSave):
    """Logs the process and seed of each reset."""

    def __init__(self, num_envs: int, file: str) -> None:
        super().__init__(num_envs)
        self.file = Path(file)

    def reset(self, seed: int) -> Timestep:
        with self.file.open("a") as file:
            file.write(f"{os.getpid()} {seed}\n")
        return super().reset(seed)


class LogsClose(Chain):
    """Logs the process of each close; in a worker a step may take some time, which is logged, too."""

    def __init__(self, num_envs: int, file: str, seconds: float = 0.0) -> None:
        super().__init__(num_envs)
        self.file = Path(file)
        self.seconds = seconds

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        if self.seconds and parent_process() is not None:
            self._write(steps_log(self.file))
            threading.Event().wait(self.seconds)
        return super().move(action)

    def close(self) -> None:
        self._write(self.file)

    def _write(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def steps_log(file: Path) -> Path:
    """Return the log of steps of slow environments."""
    return file.with_suffix(".steps")


def logged_processes(file: Path) -> set[int]:
    """Return the processes in a log."""
    return set(map(int, file.read_text().split())) if file.exists() else set()


def seeds(file: Path, pid: int) -> list[int]:
    """Return the seeds of the resets in a process."""
    return [int(seed) for process, seed in map(str.split, file.read_text().splitlines()) if int(process) == pid]
