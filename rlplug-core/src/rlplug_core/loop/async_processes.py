"""The parent of the asynchronous runner: starts worker processes, reads their messages, and fails if one fails."""

from __future__ import annotations

import copy
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing  # registers how tensors in shared memory travel
from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.errors import WorkerFailed
from rlplug_core.loop.async_inline import mean_of, pull_copy, share
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.process_spawner import launch, lock, prepare
from rlplug_core.loop.shared_memory import share_tensor
from rlplug_core.loop.worker import (
    CLOSE,
    CONTINUE,
    PAUSE,
    SETTINGS,
    STOP,
    Task,
    check_message,
    fetch,
    post,
    work,
)
from rlplug_core.protocols import AnyLearner
from rlplug_core.types import Episode, State

#: Seconds between two checks of silent workers.
GLANCE = 0.05
#: Seconds a worker may take to import its plugin and build its environment, unless it may be silent for longer.
STARTUP = 120.0
#: Seconds that a process may take after its last message to close its environment and to exit.
CLOSING = 5.0


def patience(ready: bool, timeout: float) -> float:
    """Return the seconds that a process may be silent: `timeout`, and no less than `STARTUP` until it is ready."""
    return timeout if ready else max(STARTUP, timeout)


def silence(ready: bool, limit: float) -> str:
    """Return the reason why a process was silent for that long, as the rest of a sentence."""
    if ready:
        return f"sent no message for {limit:g} s"
    return f"was not ready within {limit:g} s; it hung while its plugin or environment was built"


class Remote:
    """A worker process as the parent sees it."""

    def __init__(
        self,
        rank: int,
        target: Callable[[Any, Connection, Connection], None],
        task: Any,
    ) -> None:
        self.rank = rank
        self.connection, worker_end = Pipe()
        lifeline, self._lifeline = Pipe(duplex=False)
        self.process = launch(
            target, (task, worker_end, lifeline), (self.connection, self._lifeline)
        )
        worker_end.close()
        lifeline.close()
        #: Seconds without a message while the parent was able to read one.
        self.silent = 0.0
        self.state: State | None = None
        self.ready = self.waiting = self.done = False
        self.updates = 0
        self.inexact = ""

    def describe_exit(self) -> str:
        """Wait for a process that is about to end; return how it ended, as the rest of a sentence."""
        self.process.join(CLOSING)
        code = self.process.exitcode or 0
        return (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )

    def is_overdue(self, elapsed: float, limit: float) -> bool:
        """Return whether the process was silent for longer than `limit` seconds, `elapsed` since the last check.

        A late check means that this process was stopped, suspended or busy, maybe together with the other one, so it
        counts as at most a tenth of the limit.
        """
        self.silent += min(elapsed, limit / 10)
        return self.silent > limit

    def listens(self) -> bool:
        """Return whether the process is alive and has built its worker, even if its message was not read yet."""
        return self.process.exitcode is None and (self.ready or self.connection.poll())

    def end(self) -> None:
        """End the process in any state."""
        if self.done:
            self.process.join(CLOSING)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()
        self._lifeline.close()


def close(remotes: Sequence[Remote]) -> None:
    """Let processes close their environments, all at once, and end them; those that are late are killed."""
    asked = [remote for remote in remotes if remote.listens()]
    for remote in asked:
        with suppress(OSError):  # it is gone
            post(remote.connection, CLOSE)
    open_sentinels = {remote.process.sentinel for remote in asked}
    deadline = time.monotonic() + CLOSING
    while open_sentinels and time.monotonic() < deadline:
        open_sentinels.difference_update(wait([*open_sentinels], GLANCE))
    for remote in remotes:
        remote.end()


class Processes:
    """Worker processes on shared parameters. Their whole state is saved, but a resumed run is not bit-exact."""

    name = "async"
    on_device = False
    inexact = "gradients of asynchronous workers arrive in any order; --inline is exact"

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self.plan = plan
        self.clock = clock
        prepare()
        probe = plan.make_env(1)
        self.master = plan.make_learner(probe.spec)
        probe.close()
        #: Stored, because a lock is deleted with the last reference to it, and a worker may start later.
        self.shared = share(self.master, share_tensor, lock)
        self.slots: Tensor = share_tensor(torch.zeros(plan.options.workers, dtype=torch.int64))
        self.flags: Tensor = share_tensor(torch.zeros(3, dtype=torch.int64))
        self.scales: Tensor = share_tensor(torch.ones(1, dtype=torch.float64))
        self.pending: list[tuple[int, int, Episode]] = []
        self.reported: dict[int, list[Mapping[str, float]]] = {}
        self.saved: Sequence[State | None] = [None] * plan.options.workers
        #: Settings that controllers have made in the environments; whether workers have started.
        self.settings: dict[str, object] = {}
        self.has_started = False
        ranks = range(plan.options.workers)
        self.remotes = [Remote(rank, work, self._task(rank)) for rank in ranks]
        self.checked = time.monotonic()

    def _task(self, rank: int) -> Task:
        """Return the input of a worker."""
        return Task(
            algorithm=self.plan.algorithm,
            env=self.plan.env,
            values=self.plan.flat,
            rank=rank,
            shared=self.shared,
            slots=self.slots,
            flags=self.flags,
            scales=self.scales,
        )

    def run(self, poll: Callable[[], None]) -> None:
        self._read_until(lambda remote: remote.ready or self.clock.stop, lambda: None)
        if self.clock.stop:  # before any of them has started
            return
        for remote, state in zip(self.remotes, self.saved, strict=True):
            self._send(remote, (self.clock.limit, self.clock.total, state, self.settings))
        self.has_started = True
        self._read_until(lambda remote: remote.done, poll)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        taken = self.pending
        self.pending = []
        return taken

    def metrics(self) -> Mapping[str, float]:
        taken = self.reported
        self.reported = {}
        return mean_of([mean_of(parts) for parts in taken.values()])

    def configure(self, settings: Mapping[str, object]) -> None:
        """Send the settings to the workers, which read messages between two vector steps."""
        self.settings = dict(settings)
        if self.has_started:
            for remote in self.remotes:
                if not remote.done:
                    # The worker may have ended; its last message or its exit code comes next.
                    with suppress(OSError):
                        post(remote.connection, ("settings", self.settings))
            self.flags[SETTINGS] += 1

    def snapshot(self) -> AnyLearner:
        return pull_copy(self.master)

    def state_dict(self) -> State:
        """Return the state at a moment when every worker pauses between two vector steps.

        Their last reports are not in their states and are read later.
        """
        states = list(self.saved)
        if self.has_started:
            self.flags[PAUSE] = 1
            self._read_until(lambda remote: remote.state is not None, lambda: None)
            self._update_clock()
            states = [remote.state for remote in self.remotes]
        state = {
            "clock": self.clock.state_dict(),
            # A copy: the optimizers' part is shared, and changes as soon as the workers continue.
            "learner": copy.deepcopy(self.snapshot().state_dict()),
            "workers": {
                "slots": self.slots.clone(),
                "all": states,
                "pending": [
                    [steps, rank, *episode.plain()] for steps, rank, episode in self.pending
                ],
                "reported": [[rank, [*parts]] for rank, parts in self.reported.items()],
            },
        }
        if self.has_started:
            self._resume_workers()
        return state

    def _resume_workers(self) -> None:
        self.flags[PAUSE] = 0
        for remote in self.remotes:
            if not remote.done:
                remote.state = None
                self._send(remote, CONTINUE)

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.master.load_state_dict(state["learner"])
        self.slots.copy_(state["workers"]["slots"])
        self.saved = state["workers"]["all"]
        for remote, worker_state in zip(self.remotes, self.saved, strict=True):
            remote.updates = worker_state["clock"]["updates"] if worker_state else 0
        pending = state["workers"].get("pending", [])
        reported = state["workers"].get("reported", [])
        self.pending = [(steps, rank, Episode(*plain)) for steps, rank, *plain in pending]
        self.reported = {rank: list(parts) for rank, parts in reported}

    def close(self) -> None:
        if not self.has_started:  # else each closes its environment as it ends
            close(self.remotes)
        for remote in self.remotes:
            remote.end()

    def _read_until(
        self,
        reached: Callable[[Remote], bool],
        poll: Callable[[], None],
    ) -> None:
        """Read messages until `reached` is true for each worker; call `poll` between messages."""
        while not all(reached(remote) for remote in self.remotes):
            self.flags[STOP], self.scales[0] = int(self.clock.stop), self.clock.scale
            connections = {remote.connection: remote for remote in self.remotes if not remote.done}
            for connection in wait(list(connections), GLANCE):
                assert isinstance(connection, Connection)
                self._read_message(connections[connection])
            self._check_workers()
            self._update_clock()
            if not self.clock.done:
                poll()

    def _update_clock(self) -> None:
        self.clock.steps = int(self.slots.sum())
        self.clock.updates = sum(remote.updates for remote in self.remotes)

    def _send(self, remote: Remote, message: object) -> None:
        """Send a waiting worker its task; from now on it must send messages."""
        remote.waiting = False
        remote.silent = 0.0
        try:
            post(remote.connection, message)
        except OSError:
            raise self._died(remote) from None

    def _read_message(self, remote: Remote) -> None:
        try:
            kind, content = fetch(remote.connection)
        except (EOFError, OSError):
            raise self._died(remote) from None
        remote.silent = 0.0
        if kind == "report":
            remote.updates, episodes, metrics = content
            self.pending += [(steps, remote.rank, episode) for steps, episode in episodes]
            if metrics:
                self.reported.setdefault(remote.rank, []).append(metrics)
        elif kind == "ready":
            remote.ready = True
            remote.waiting = True
            remote.inexact = content
        else:
            check_message(f"worker {remote.rank}", kind, content)
            remote.state = content
            remote.done = kind == "done"
            remote.waiting = kind == "state"

    def _check_workers(self) -> None:
        """Find workers that have died or hang."""
        before = self.checked
        self.checked = time.monotonic()
        for remote in self.remotes:
            if remote.done or remote.connection.poll():
                continue
            # The process may have ended while its children hold its pipe open.
            if remote.process.exitcode is not None:
                raise self._died(remote)
            limit = patience(remote.ready, self.plan.options.worker_timeout)
            if remote.is_overdue(self.checked - before, limit) and not remote.waiting:
                where = "; it hung in its environment or update" if remote.ready else ""
                sentence = f"worker {remote.rank} {silence(remote.ready, limit)}{where}"
                raise WorkerFailed(f"{sentence} (--worker-timeout waits longer)", sentence)

    def _died(self, remote: Remote) -> WorkerFailed:
        how = remote.describe_exit()
        return WorkerFailed(
            f"worker {remote.rank} {how}; its last message did not arrive",
            f"worker {remote.rank} {how}",
        )
