"""Environments that each fail in another way in worker processes, chains in the parent; and a harmful pickle."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from dataclasses import replace
from multiprocessing import current_process, parent_process

from rlplug_core.testing.envs import Chain, Faulty
from rlplug_core.types import Array, Timestep


class Bomb:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def in_worker() -> bool:
    return parent_process() is not None


class Threaded(Chain):
    """Uses two threads, which would slow other processes down."""

    threads = 2


class Killed(Faulty):
    """Dies as if the kernel had run out of memory."""

    def fail(self) -> None:
        if in_worker():
            os.kill(os.getpid(), signal.SIGKILL)


def fork_simulator(seconds: float) -> None:
    """Start a process that lives as long as the run, but at most `seconds`."""
    run = os.pidfd_open(os.getppid())
    if os.fork() == 0:
        select.select([run], [], [], seconds)
        os._exit(0)
    os.close(run)


class KilledWithChild(Faulty):
    """Its simulator process outlives it, and holds a copy of its pipe to the parent."""

    def fail(self) -> None:
        if in_worker():
            fork_simulator(5)
            os.kill(os.getpid(), signal.SIGKILL)


class KilledAfterChild(Killed):
    """Starts its simulator before the pipe."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        if in_worker():
            fork_simulator(10)


class SometimesAbsent(Chain):
    """Every fifth step, its first row holds no transition, as if it reset in a step of its own."""

    def step(self, action: Array) -> Timestep:
        now = super().step(action)
        if self.state["length"][-1] % 5 != 4:
            return now
        now.valid[0] = False
        return replace(now, count=self.num_envs - 1)


class SimulatorGone(Faulty):
    """The pipe to its simulator breaks, not the pipe to the parent."""

    def fail(self) -> None:
        if in_worker():
            raise EOFError("a simulator went away")


class Exits(Faulty):
    """Exits the process, as only a program should."""

    def fail(self) -> None:
        if in_worker():
            sys.exit(5)


class TwoLineError(Faulty):
    """Raises an error of two lines."""

    def fail(self) -> None:
        if in_worker():
            raise RuntimeError("first\nsecond")


class FailsToBuild(Chain):
    """Cannot be built in a worker."""

    def __init__(self, num_envs: int) -> None:
        if in_worker():
            raise ValueError("no display")
        super().__init__(num_envs)


class SlowToBuild(Chain):
    """The second worker needs three seconds to build it."""

    def __init__(self, num_envs: int) -> None:
        if in_worker() and current_process().name.endswith("2"):
            threading.Event().wait(3)
        super().__init__(num_envs)


class NeverBuilds(Chain):
    """A worker waits forever while it builds it."""

    def __init__(self, num_envs: int) -> None:
        if in_worker():
            threading.Event().wait()
        super().__init__(num_envs)
