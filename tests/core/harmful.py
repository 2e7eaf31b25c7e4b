"""Environments that fail in worker processes in ways of their own; in the parent they are chains."""

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


def in_worker() -> bool:
    return parent_process() is not None


class Threaded(Chain):
    """Does no harm alone; its threads would be in the way of other processes."""

    threads = 2


class Killed(Faulty):
    """As the kernel does when memory runs out."""

    def fail(self) -> None:
        if in_worker():
            os.kill(os.getpid(), signal.SIGKILL)


def fork_simulator(seconds: float) -> None:
    """A process that lives while there is who could notice, but not for ever."""
    run = os.pidfd_open(os.getppid())
    if os.fork() == 0:
        select.select([run], [], [], seconds)
        os._exit(0)
    os.close(run)


class KilledWithChild(Faulty):
    """A simulator of its own outlives it, and with it a copy of its pipe to the parent."""

    def fail(self) -> None:
        if in_worker():
            fork_simulator(5)
            os.kill(os.getpid(), signal.SIGKILL)


class KilledBesideChild(Killed):
    """The same, with a simulator that was there before anything else."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        if in_worker():
            fork_simulator(10)


class Resting(Chain):
    """Every fifth step, its first row holds no transition, as that of an environment which resets in a step."""

    def step(self, action: Array) -> Timestep:
        now = super().step(action)
        if self.state["length"][-1] % 5 != 4:
            return now
        now.valid[0] = False
        return replace(now, count=self.num_envs - 1)


class LosesItsPipe(Faulty):
    """The pipe to a simulator breaks, which is not the pipe to the parent."""

    def fail(self) -> None:
        if in_worker():
            raise EOFError("a simulator went away")


class Leaves(Faulty):
    """Foreign code that thinks it is the program."""

    def fail(self) -> None:
        if in_worker():
            sys.exit(5)


class Talks(Faulty):
    """Says why in two lines."""

    def fail(self) -> None:
        if in_worker():
            raise RuntimeError("first\nsecond")


class FailsToBuild(Chain):
    """Cannot be made where it is needed."""

    def __init__(self, num_envs: int) -> None:
        if in_worker():
            raise ValueError("no display")
        super().__init__(num_envs)


class SlowToBuild(Chain):
    """The second worker takes three seconds to make it."""

    def __init__(self, num_envs: int) -> None:
        if in_worker() and current_process().name.endswith("2"):
            threading.Event().wait(3)
        super().__init__(num_envs)


class NeverBuilt(Chain):
    """A worker waits for ever as it makes it."""

    def __init__(self, num_envs: int) -> None:
        if in_worker():
            threading.Event().wait()
        super().__init__(num_envs)
