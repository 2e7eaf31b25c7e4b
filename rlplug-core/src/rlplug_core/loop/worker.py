"""Run a worker process of the asynchronous runner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from rlplug_core.loop.async_inline import Shared, Worker
from rlplug_core.loop.child_process import CLOSE, fetch, post
from rlplug_core.loop.events import TICK
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.sync import loop
from rlplug_core.plugins.env_base import complete
from rlplug_core.seeds import global_state, load_global_state

#: Positions in `flags` of a task: whether all workers stop; whether all send their state and wait; the number of
#: messages with settings of environments so far.
STOP = 0
PAUSE = 1
SETTINGS = 2
#: The message that a worker waits for after it has sent its state.
CONTINUE = "continue"


@dataclass(frozen=True)
class WorkerTask:
    """The input of a worker.

    Attributes:
        shared: the parameters and states that all workers share.
        slots: [workers] the env steps of each worker.
        flags: requests to all workers, at the positions `STOP`, `PAUSE` and `SETTINGS`.
        scales: [1] the factor of every learning rate.
    """

    words: PlanWords
    rank: int
    shared: Shared
    slots: Tensor
    flags: Tensor
    scales: Tensor


class _Signals:
    """The stop and the learning-rate factor of the whole run, in memory shared with the parent."""

    def __init__(self, flags: Tensor, scales: Tensor) -> None:
        self.flags = flags.numpy().data
        self.scales = scales.numpy().data

    @property
    def stop(self) -> bool:
        return bool(self.flags[STOP])

    @property
    def scale(self) -> float:
        return float(self.scales[0])


class WorkerProcess:
    """A worker's loop and its messages to and from the parent."""

    def __init__(self, task: WorkerTask, parent: Connection) -> None:
        plan = task.words.start("globals", task.rank).with_learner_data()
        signals = _Signals(task.flags, task.scales)
        self.flags = signals.flags
        self.worker = Worker(plan, task.shared, task.slots.numpy().data, signals, task.rank)
        self.parent = parent
        self.next_tick = 0.0
        #: Whether the parent waits for the end of an episode, which may be the run's last.
        self.reports_episodes = plan.options.max_episodes > 0
        #: The number of messages with settings that were read.
        self.messages_read = 0

    def run(self) -> None:
        clock = self.worker.clock
        post(self.parent, ("ready", None))
        message = fetch(self.parent)
        if message == CLOSE:
            return self.worker.actor.env.close()
        clock.limit, clock.total, state, settings = message
        self.configure(settings)  # before an environment without a saved state starts again
        if state is not None:
            limit = clock.limit
            total = clock.total
            load_global_state(state["globals"])
            self.worker.load_state_dict(state)
            clock.limit = limit
            clock.total = total
            self.configure(settings)
        loop(self.worker.actor, clock, self.worker.meter, self.poll)
        self.report()
        post(self.parent, ("done", self.state()))
        self.worker.actor.env.close()

    def poll(self) -> None:
        if self.flags[PAUSE]:
            self.report()
            post(self.parent, ("state", self.state()))
            while (message := fetch(self.parent)) != CONTINUE:
                self.apply_message(message)
        while self.messages_read < self.flags[SETTINGS]:
            self.apply_message(fetch(self.parent))
        if time.monotonic() >= self.next_tick or (
            self.reports_episodes and self.worker.actor.episodes
        ):
            self.next_tick = time.monotonic() + TICK
            self.report()

    def apply_message(self, message: tuple[str, dict[str, object]]) -> None:
        self.messages_read += 1
        self.configure(message[1])

    def configure(self, settings: dict[str, object]) -> None:
        if settings:
            complete(self.worker.actor.env).configure(settings)

    def report(self) -> None:
        """Send episodes and metrics since the last report, also if there are none; wait while the pipe is full."""
        episodes = self.worker.actor.take_episodes()
        post(
            self.parent,
            ("report", (self.worker.clock.updates, episodes, self.worker.meter.flush())),
        )

    def state(self) -> dict[str, Any]:
        return {**self.worker.state_dict(), "globals": global_state()}
