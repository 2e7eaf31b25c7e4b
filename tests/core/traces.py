"""Environments whose state cannot be captured, or that say in a file what was done with them."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from multiprocessing import parent_process
from pathlib import Path

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, State, Timestep


class Uncaptured(Chain):
    """A chain whose state lies in a simulator that gives it to nobody."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = replace(self.spec, inexact="Uncaptured: a test")

    def state_dict(self) -> State:
        return {"inexact": self.spec.inexact}


class Seeded(Uncaptured):
    """Writes down whose environments began with which seed."""

    def __init__(self, num_envs: int, file: str) -> None:
        super().__init__(num_envs)
        self.file = Path(file)

    def reset(self, seed: int) -> Timestep:
        with self.file.open("a") as file:
            file.write(f"{os.getpid()} {seed}\n")
        return super().reset(seed)


class Closed(Chain):
    """Writes down where its environments were closed; in a worker a step may take some time, which it says, too."""

    def __init__(self, num_envs: int, file: str, seconds: float = 0.0) -> None:
        super().__init__(num_envs)
        self.file, self.seconds = Path(file), seconds

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        if self.seconds and parent_process() is not None:
            self._write(stepping(self.file))
            threading.Event().wait(self.seconds)
        return super().move(action)

    def close(self) -> None:
        self._write(self.file)

    def _write(self, path: Path) -> None:
        with path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def stepping(file: Path) -> Path:
    """Where slow environments say that they step."""
    return file.with_suffix(".steps")


def processes_in(file: Path) -> set[int]:
    """The processes that have written there."""
    return set(map(int, file.read_text().split())) if file.exists() else set()


def seeds(file: Path, pid: int) -> list[int]:
    """The seeds that a process began with."""
    return [int(seed) for who, seed in map(str.split, file.read_text().splitlines()) if int(who) == pid]
