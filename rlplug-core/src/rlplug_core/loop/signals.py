"""The signals that ask a run to save and to end: their handlers, and the effect of a second one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlplug_core.config.import_string import describe, place_of
from rlplug_core.errors import RlplugError, Stopped

#: Ctrl-C, a batch system's end, a terminal that closes, a batch system's warning; on Windows Ctrl-C and Ctrl-Break.
STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK")
    if hasattr(signal, name)
)
#: Whether a process can block signals for a while; Windows cannot.
CAN_BLOCK = hasattr(signal, "pthread_sigmask")
#: Signals that end the run without a checkpoint when they arrive a second time.
URGENT = (signal.SIGINT, signal.SIGTERM)
#: Seconds in which Python must handle the second signal; C code that hangs prevents that.
PATIENCE = 5.0
#: The name of the thread that counts signals.
WATCHER = "rlplug-signals"
#: The byte that ends the thread that counts signals; no signal has this number.
OVER = b"\0"
#: The signals that each thread had blocked before its fork.
_masks: dict[int, set[int | signal.Signals]] = {}


@contextmanager
def handle_signals(stop: Callable[[int], None]) -> Iterator[None]:
    """Call `stop` with the number of the first signal; a second urgent one raises at once.

    A signal that the parent ignores, as `nohup` does with SIGHUP, stays ignored. Only the main thread gets signals;
    in another thread nothing changes.

    Raises:
        Stopped: a second SIGINT or SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listener = _Listener(stop)
    numbers = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, listener) for number in numbers}
    with listener.watching():
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Listener:
    """Counts signals in a Python handler and in a thread, in case the main thread hangs and runs no handler."""

    def __init__(self, stop: Callable[[int], None]) -> None:
        self.stop = stop
        self.stopped = self.got_urgent = False
        self.reacted = threading.Event()

    def __call__(self, number: int, frame: object) -> None:
        if number in URGENT and self.got_urgent:
            self.reacted.set()
            raise Stopped(f"stopped at once by a second {signal.Signals(number).name}", number)
        self.got_urgent = self.got_urgent or number in URGENT
        if not self.stopped:
            self.stopped = True
            self.stop(number)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Receive the signal numbers in a thread during the block, even if the main thread hangs."""
        read_end, write_end = os.pipe()
        _set_blocking(write_end, False)
        before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=(read_end,), name=WATCHER, daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self.reacted.set()
            _set_blocking(write_end, True)
            # Closing it does not end a reader while a forked process has it open, too.
            os.write(write_end, OVER)
            thread.join()
            os.close(write_end)
            os.close(read_end)

    def _watch(self, numbers: int) -> None:
        urgent = 0
        while (byte := os.read(numbers, 1)) != OVER:
            urgent += byte[0] in URGENT
            if urgent == 2 and not self.reacted.wait(PATIENCE):
                name = signal.Signals(byte[0]).name
                message = f"rlplug: ended by a second {name}, because the run did not react; "
                remedy = "to continue: rlplug resume RUN\n"
                os.write(2, f"{message}{remedy}".encode())
                os._exit(128 + byte[0])


def _set_blocking(pipe: int, blocking: bool) -> None:
    if hasattr(os, "set_blocking"):  # Windows needs no such pipe for signals
        os.set_blocking(pipe, blocking)


def _handles_signals() -> list[int]:
    return [number for number in STOPPING if isinstance(signal.getsignal(number), _Listener)]


def _before_fork() -> None:
    """Block signals until the new process has its own handlers: Python would drop a signal that arrives earlier."""
    if _handles_signals():
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _after_fork() -> None:
    before = _masks.pop(threading.get_ident(), None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _set_fork_handlers() -> None:
    """Set the handlers of a process that an environment forks: SIGTERM ends it, and it ignores the others.

    Otherwise it would report its signals to the run, through the pipe that it inherited.
    """
    numbers = _handles_signals()
    for number in numbers:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else _do_nothing)
    if numbers:
        signal.set_wakeup_fd(-1)
    _after_fork()


def _do_nothing(number: int, frame: object) -> None:
    """Do nothing. SIG_IGN instead of a handler would be inherited by the simulators that an environment starts."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_set_fork_handlers
    )


@contextmanager
def block_signals() -> Iterator[None]:
    """Block signals in new processes until they call `ignore_stop_signals`; this process gets them after the block."""
    if not CAN_BLOCK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_signals() -> None:
    """Ignore signals that a terminal or a batch system sends to every process of a run: the parent handles them."""
    for number in STOPPING:
        signal.signal(number, _do_nothing)
    _unblock()


def restore_stop_signals() -> None:
    """Let these signals end the process: the server that forked it blocks them."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    _unblock()


def _unblock() -> None:
    if CAN_BLOCK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


@contextmanager
def no_exit(when: str = "while it trained") -> Iterator[None]:
    """Turn `sys.exit` in foreign code into an error: `sys.exit(0)` would look like a finished run.

    Do the same with other exceptions that `except Exception` does not catch, except for an interrupt.

    Raises:
        RlplugError: the block called it, or raised such an exception.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise RlplugError(
            f"the environment, the algorithm or a wrapper called sys.exit({error.code!r}) {when}"
        ) from error
    except BaseException as error:
        raise RlplugError(
            f"the environment, the algorithm or a wrapper raised {describe(error)}{place_of(error)}, which is not an "
            "ordinary error; let it raise a subclass of Exception"
        ) from error
