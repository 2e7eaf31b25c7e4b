"""Environments whose state cannot be captured, or that say in a file what was done with them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rlplug_core.testing.envs import Chain
from rlplug_core.types import State, Timestep


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


def seeds(file: Path, pid: int) -> list[int]:
    """The seeds that a process began with."""
    return [int(seed) for who, seed in map(str.split, file.read_text().splitlines()) if int(who) == pid]
