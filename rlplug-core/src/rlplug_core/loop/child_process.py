"""The child processes of a run: the child's side, the parent's side, and their messages, which are plain pickle."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from rlplug_core.config.import_string import describe
from rlplug_core.errors import NonFinite, RlplugError, UnknownEnv, WorkerFailed
from rlplug_core.loop.process_spawner import launch
from rlplug_core.loop.safe_streams import make_streams_safe
from rlplug_core.loop.signals import ignore_stop_signals
from rlplug_core.types import State

#: The message that asks a child to close its environments and exit.
CLOSE = ("close", None)
#: Seconds between two checks of silent children.
GLANCE = 0.05
#: Seconds that a child may take to import its plugin and build its environment; `worker_timeout` if that is longer.
STARTUP = 120.0
#: Seconds that a child may take after its last message to close its environment and to exit.
CLOSING = 5.0
#: The remedy if a process does not know an environment id that the run's own process knows.
UNREGISTERED = "other processes do not know an id that a script registers: register it in a module and write MODULE:ID"
#: The advice for a process that was silent for too long.
WAIT_LONGER = " (--worker-timeout waits longer)"


def post(connection: Connection, message: object) -> None:
    """Send a message by plain pickle.

    `Connection.send` would move every tensor to shared memory *in place*, and numpy views would keep the old memory.
    """
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def fetch(connection: Connection) -> Any:
    """Receive a message of `post`; only processes of this run send them."""
    return pickle.loads(connection.recv_bytes())


def check_message(who: str, kind: str, content: Any) -> None:
    """Raise the exception that a message of a child reports, if any: NonFinite for a NaN, otherwise WorkerFailed."""
    if kind == "error":
        raise WorkerFailed(f"{who} failed: {content[0]}", content[1])
    if kind == "not finite":
        raise NonFinite(f"in {who}, {content[0]}")


class ChildWork(Protocol):
    """The work of a child process, made from its task and its end of a pipe to the parent."""

    def run(self) -> None: ...


def run_child(
    make: Callable[[Any, Connection], ChildWork],
    task: object,
    parent: Connection,
    lifeline: Connection,
) -> None:
    """Run the work of a child, and exit if the parent ends; send an exception to the parent, and exit with code 1."""
    ignore_stop_signals()
    gc.freeze()  # the collector writes to all objects, and those from the fork are shared
    make_streams_safe()
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    try:
        make(task, parent).run()
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


def silence_limit(ready: bool, timeout: float) -> float:
    """Return the seconds that a process may be silent: `timeout`, and no less than `STARTUP` until it is ready."""
    return timeout if ready else max(STARTUP, timeout)


def describe_silence(ready: bool, limit: float) -> str:
    """Describe a process that was silent for `limit` seconds, as the rest of a sentence that starts with its name."""
    if ready:
        return f"sent no message for {limit:g} s"
    return f"was not ready within {limit:g} s; it hung while its plugin or environment was built"


class ChildLost(WorkerFailed):
    """A child has ended or hangs, so that it sends no more messages.

    Attributes:
        how: how it was lost, as the rest of a sentence that starts with its name.
        advice: the end of that sentence, with the option that waits longer; "" if the child has ended.
    """

    def __init__(
        self,
        name: str,
        how: str,
        advice: str = "",
    ) -> None:
        super().__init__(f"{name} {how}{advice}", f"{name} {how}")
        self.how = how
        self.advice = advice


class Child:
    """A child process as its parent sees it.

    Args:
        name: its kind in messages, such as `worker`; the rank follows.
        rank: its number among the children of this kind.
        make: makes its work from `task` and its end of a pipe.
        timeout: seconds that it may be silent once it is ready.

    Attributes:
        ready: whether it has built its environments.
        waiting: whether it waits for a message, so that it may be silent.
        done: whether it has sent its last message.
        silent: seconds without a message; a long time without a check counts only in part.
        state: the state that the parent has asked for, once it has arrived.
        updates: its updates so far, if it reports them.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        make: Callable[[Any, Connection], ChildWork],
        task: Any,
        timeout: float,
    ) -> None:
        self.name = f"{name} {rank}"
        self.rank = rank
        self.timeout = timeout
        self.connection, child_end = Pipe()
        lifeline, self._lifeline = Pipe(duplex=False)
        arguments = (make, task, child_end, lifeline)
        self.process = launch(run_child, arguments, (self.connection, self._lifeline))
        child_end.close()
        lifeline.close()
        self.silent = 0.0
        self.state: State | None = None
        self.ready = self.waiting = self.done = False
        self.updates = 0

    def send(self, message: object) -> None:
        """Send a message; from now on the child must send messages.

        Raises:
            ChildLost: it has ended. WorkerFailed, NonFinite: it has ended after it reported an exception.
        """
        try:
            self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except ChildLost:
            while self.connection.poll():  # the report may be in the pipe
                self.receive()
            raise

    def send_bytes(self, message: bytes) -> None:
        """Send a message that is already pickled."""
        self.waiting = False
        self.silent = 0.0
        try:
            self.connection.send_bytes(message)
        except OSError:
            raise ChildLost(self.name, self._describe_exit()) from None

    def receive(self) -> tuple[str, Any]:
        """Return the kind and the content of the next message; wait for it without a limit.

        Raises:
            ChildLost: the child has ended. WorkerFailed, NonFinite: it reports an exception.
        """
        kind, content = pickle.loads(self.receive_bytes())
        check_message(self.name, kind, content)
        return kind, content

    def receive_bytes(self) -> bytes:
        """Return the next message, still pickled."""
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise ChildLost(self.name, self._describe_exit()) from None
        self.silent = 0.0
        return message

    def wait(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait for a message; return False if `stopped` returns true before one arrives.

        Raises:
            ChildLost: the child has ended, or is silent for too long.
        """
        self.silent = 0.0
        checked = time.monotonic()
        while not self.connection.poll(GLANCE):
            if stopped():
                return False
            before = checked
            checked = time.monotonic()
            self.check(checked - before)
        return True

    def check(self, elapsed: float, must_send: bool = True) -> None:
        """Check that the child lives and is not silent for too long, `elapsed` seconds after the last check.

        Raises:
            ChildLost: it has ended without a message, or must send one and is silent for too long.
        """
        # Read before the pipe, because a child may send a message and exit in between.
        has_exited = self.process.exitcode is not None
        if self.connection.poll():
            return
        # The pipe does not always show it, because the child's own processes may hold its end open.
        if has_exited:
            raise ChildLost(self.name, self._describe_exit())
        limit = silence_limit(self.ready, self.timeout)
        # A late check means that this process was stopped, suspended or busy, maybe together with the child, so it
        # counts as at most a tenth of the limit.
        self.silent += min(elapsed, limit / 10)
        if must_send and self.silent > limit:
            hung = "; it hung, probably in its environment" if self.ready else ""
            how = describe_silence(self.ready, limit)
            raise ChildLost(self.name, how, hung + WAIT_LONGER)

    def _describe_exit(self) -> str:
        """Wait for a child that is about to end; return how it ended, as the rest of a sentence."""
        self.process.join(CLOSING)
        code = self.process.exitcode or 0
        return (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )

    def end(self) -> None:
        """End the child: after its last message it has a few seconds to exit, otherwise it is killed at once."""
        if self.done:
            self.process.join(CLOSING)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()
        self._lifeline.close()


def close(children: Sequence[Child]) -> None:
    """Ask all children that are ready to close their environments and exit; kill the others, and late ones."""
    # A child may be ready before its first message was read.
    asked = [
        child
        for child in children
        if child.process.exitcode is None and (child.ready or child.connection.poll())
    ]
    for child in asked:
        with suppress(OSError):  # it is gone
            post(child.connection, CLOSE)
    open_sentinels = {child.process.sentinel for child in asked}
    deadline = time.monotonic() + CLOSING
    while open_sentinels and time.monotonic() < deadline:
        open_sentinels.difference_update(wait([*open_sentinels], GLANCE))
    for child in children:
        child.end()


def wait_for_messages(
    children: Iterable[Child],
    timeout: float,
) -> list[Child]:
    """Return the children that have sent a message; wait for one, but no longer than `timeout` seconds."""
    by_connection: dict[object, Child] = {child.connection: child for child in children}
    connections = [child.connection for child in by_connection.values()]
    return [by_connection[connection] for connection in wait(connections, timeout)]
