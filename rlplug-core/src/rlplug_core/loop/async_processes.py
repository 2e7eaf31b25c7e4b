"""The parent of the asynchronous runner: starts worker processes, reads their messages, and fails if one fails."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
import torch.multiprocessing  # registers how tensors in shared memory travel
from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.loop.async_inline import pull_copy, share
from rlplug_core.loop.child_process import GLANCE, Child, close, post, wait_for_messages
from rlplug_core.loop.episode_stats import means
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.process_spawner import lock, start_server_early
from rlplug_core.loop.shared_memory import share_tensor
from rlplug_core.loop.worker import CONTINUE, PAUSE, SETTINGS, STOP, WorkerProcess, WorkerTask
from rlplug_core.protocols import AnyLearner
from rlplug_core.types import Episode, State


class WorkerProcesses:
    """Worker processes on shared parameters. Their whole state is saved, but a resumed run is not bit-exact."""

    name = "async"
    on_device = False
    inexact = "gradients of asynchronous workers arrive in any order; --inline is exact"

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self.plan = plan
        self.clock = clock
        start_server_early()
        probe = plan.make_env(1)
        self.master = plan.make_learner(probe.spec)
        probe.close()
        #: Stored, because a lock is deleted with the last reference to it, and a worker may start later.
        self.shared = share(self.master, share_tensor, lock)
        self.slots: Tensor = share_tensor(torch.zeros(plan.options.workers, dtype=torch.int64))
        self.flags: Tensor = share_tensor(torch.zeros(3, dtype=torch.int64))
        self.scales: Tensor = share_tensor(torch.ones(1, dtype=torch.float64))
        #: Episodes, and metrics of each rank, that workers have reported since they were last taken.
        self.pending: list[tuple[int, int, Episode]] = []
        self.reported: dict[int, list[Mapping[str, float]]] = {}
        self.saved: Sequence[State | None] = [None] * plan.options.workers
        #: Settings that controllers have made in the environments; whether workers have started.
        self.settings: dict[str, object] = {}
        self.has_started = False
        timeout = plan.options.worker_timeout
        self.children = [
            Child("worker", rank, WorkerProcess, self._task(rank), timeout)
            for rank in range(plan.options.workers)
        ]
        self.checked = time.monotonic()

    def _task(self, rank: int) -> WorkerTask:
        """Return the input of a worker."""
        return WorkerTask(
            words=PlanWords.of(self.plan),
            rank=rank,
            shared=self.shared,
            slots=self.slots,
            flags=self.flags,
            scales=self.scales,
        )

    def run(self, poll: Callable[[], None]) -> None:
        self._read_until(lambda child: child.ready or self.clock.stop, lambda: None)
        if self.clock.stop:  # before any of them has started
            return
        for child, state in zip(self.children, self.saved, strict=True):
            child.send((self.clock.limit, self.clock.total, state, self.settings))
        self.has_started = True
        self._read_until(lambda child: child.done, poll)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        episodes = self.pending
        self.pending = []
        return episodes

    def metrics(self) -> Mapping[str, float]:
        reported = self.reported
        self.reported = {}
        return means([means(reports) for reports in reported.values()])

    def configure(self, settings: Mapping[str, object]) -> None:
        """Send the settings to the workers, which read messages between two vector steps."""
        self.settings = dict(settings)
        if self.has_started:
            for child in self.children:
                if not child.done:
                    # The worker may have ended; its last message or its exit code comes next.
                    with suppress(OSError):
                        post(child.connection, ("settings", self.settings))
            self.flags[SETTINGS] += 1

    def snapshot(self) -> AnyLearner:
        return pull_copy(self.master)

    def state_dict(self) -> State:
        """Return the state at a moment when every worker pauses between two vector steps.

        Their reports up to then are not in their own states; they are saved as `pending` and `reported`.
        """
        states = list(self.saved)
        if self.has_started:
            self.flags[PAUSE] = 1
            self._read_until(lambda child: child.state is not None, lambda: None)
            self._update_clock()
            states = [child.state for child in self.children]
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
                "reported": [[rank, [*reports]] for rank, reports in self.reported.items()],
            },
        }
        if self.has_started:
            self._resume_workers()
        return state

    def _resume_workers(self) -> None:
        self.flags[PAUSE] = 0
        for child in self.children:
            if not child.done:
                child.state = None
                child.send(CONTINUE)

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.master.load_state_dict(state["learner"])
        self.slots.copy_(state["workers"]["slots"])
        self.saved = state["workers"]["all"]
        for child, worker_state in zip(self.children, self.saved, strict=True):
            child.updates = worker_state["clock"]["updates"] if worker_state else 0
        pending = state["workers"].get("pending", [])
        reported = state["workers"].get("reported", [])
        self.pending = [(steps, rank, Episode(*plain)) for steps, rank, *plain in pending]
        self.reported = {rank: list(reports) for rank, reports in reported}

    def close(self) -> None:
        if not self.has_started:  # else each closes its environment as it ends
            close(self.children)
        for child in self.children:
            child.end()

    def _read_until(
        self,
        reached: Callable[[Child], bool],
        poll: Callable[[], None],
    ) -> None:
        """Read messages until `reached` is true for each worker; call `poll` between messages."""
        while not all(reached(child) for child in self.children):
            self.flags[STOP], self.scales[0] = int(self.clock.stop), self.clock.scale
            running = [child for child in self.children if not child.done]
            for child in wait_for_messages(running, GLANCE):
                self._read_message(child)
            self._check_workers()
            self._update_clock()
            if not self.clock.done:
                poll()

    def _update_clock(self) -> None:
        self.clock.steps = int(self.slots.sum())
        self.clock.updates = sum(child.updates for child in self.children)

    def _read_message(self, child: Child) -> None:
        kind, content = child.receive()
        if kind == "report":
            child.updates, episodes, metrics = content
            self.pending += [(steps, child.rank, episode) for steps, episode in episodes]
            if metrics:
                self.reported.setdefault(child.rank, []).append(metrics)
        elif kind == "ready":
            child.ready = True
            child.waiting = True
        else:
            child.state = content
            child.done = kind == "done"
            child.waiting = kind == "state"

    def _check_workers(self) -> None:
        """Raise ChildLost if a worker has ended or hangs."""
        before = self.checked
        self.checked = time.monotonic()
        for child in self.children:
            if not child.done:
                child.check(self.checked - before, must_send=not child.waiting)
