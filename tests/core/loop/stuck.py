"""Environments that hang once in their twentieth step, and create the file that STUCK names."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Timestep


class InPython(Chain):
    """Hangs in Python, which handles signals."""

    steps: int = 0

    def step(self, action: Array) -> Timestep:
        self.steps += 1
        if self.steps == 20 and (mark := os.environ.get("STUCK")) and not Path(mark).exists():
            Path(mark).touch()
            self.hang()
        return super().step(action)

    def hang(self) -> None:
        while True:
            time.sleep(1)


class InC(InPython):
    """Hangs in C: signals reach the process but not Python."""

    def hang(self) -> None:
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)  # a deadlock that no signal interrupts
