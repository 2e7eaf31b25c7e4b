"""Run a worker process of the asynchronous runner."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from rlplug_core.config.import_string import describe
from rlplug_core.errors import NonFinite, RlplugError, UnknownEnv, WorkerFailed
from rlplug_core.loop.async_inline import Shared, Worker
from rlplug_core.loop.events import TICK
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.safe_streams import make_streams_safe
from rlplug_core.loop.signals import ignore_stop_signals
from rlplug_core.loop.sync import loop
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.plugins.env_base import complete
from rlplug_core.seeds import global_state, load_global_state, seed_globals


@dataclass(frozen=True)
class Task:
    """The input of a worker. The plan is sent as the words that the user typed, so that no class is pickled."""

    algorithm: str
    env: str
    values: dict[str, Any]
    rank: int
    shared: Shared
    slots: Tensor
    flags: Tensor
    scales: Tensor


def check_message(who: str, kind: str, content: Any) -> None:
    """Raise the exception that a process reports: NonFinite for a NaN, WorkerFailed for another one."""
    if kind == "error":
        raise WorkerFailed(f"{who} failed: {content[0]}", content[1])
    if kind == "not finite":
        raise NonFinite(f"in {who}, {content[0]}")


def post(connection: Connection, message: object) -> None:
    """Send a message by plain pickle.

    `Connection.send` would move every tensor to shared memory *in place*, and numpy views would keep the old memory.
    """
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def fetch(connection: Connection) -> Any:
    """Receive a message of `post`; only processes of this run send them."""
    return pickle.loads(connection.recv_bytes())


#: Positions in `Task.flags`: all workers stop; all workers send their state and wait.
STOP = 0
PAUSE = 1
#: The message that a worker waits for after it has sent its state.
CONTINUE = "continue"
#: The message that lets other processes of a run close their environments and end.
CLOSE = ("close", None)
#: Position in `Task.flags`: the number of sent messages with settings of environments.
SETTINGS = 2


#: The remedy if a process does not know an environment id that the run's own process knows.
UNREGISTERED = "other processes do not know an id that a script registers: register it in a module and write MODULE:ID"


def work(task: Task, parent: Connection, lifeline: Connection) -> None:
    """Build a worker, notify the parent, train until the clock is done."""
    run_child(lambda: _Work(task, parent).run(), parent, lifeline)


def run_child(
    run: Callable[[], None],
    parent: Connection,
    lifeline: Connection,
) -> None:
    """Run the work of a child process, which ends with its parent; every exit sends a message or has an exit code."""
    ignore_stop_signals()
    gc.freeze()  # the collector writes to all objects, and those from the fork are shared
    make_streams_safe()
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    try:
        run()
    except BaseException as error:  # noqa: BLE001  # the parent reports every exception
        reason = str(error) if isinstance(error, RlplugError) else describe(error)
        if isinstance(error, UnknownEnv):  # the run's own process knows the id
            reason += f"; {UNREGISTERED}"
        kind = "not finite" if isinstance(error, NonFinite) else "error"
        with suppress(OSError):  # the parent may have ended
            post(parent, (kind, (reason, traceback.format_exc())))
        raise SystemExit(1) from None


def _end_with_parent(lifeline: Connection) -> None:
    """Exit when the parent dies, even if an environment hangs: reading the lifeline returns only then."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


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


class _Work:
    """A worker's loop and its messages to and from the parent."""

    def __init__(self, task: Task, parent: Connection) -> None:
        plan = Plan.make(task.algorithm, task.env, task.values).with_learner_data()
        set_torch(plan.options.threads)
        seed_globals(plan.seeds().child("globals", task.rank))
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
        post(self.parent, ("ready", self.worker.actor.env.spec.inexact))
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
