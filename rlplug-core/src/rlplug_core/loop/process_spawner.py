"""The origin of a run's processes: the run itself, which is forked while nothing else is at work in it, or a server.

Windows has neither: there each process is a new Python, which takes seconds.

A fork starts with everything that its origin has loaded, and shares the memory until one of them writes. It also has
origin's locks, and one that another thread held at that moment is locked in it for ever. So a run is forked only while
it has only threads that are known to be safe; the server, which has to load the same again, has no other.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from rlplug_core.accelerator import room
from rlplug_core.loop.signals import WATCHER, block_signals

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext

    Server: TypeAlias = ForkServerContext | SpawnContext

#: What Linux says about this process: a directory for each thread, Python's or not.
TASKS = Path("/proc/self/task")
#: The way to start processes without a fork of this one.
SERVER: Literal["forkserver", "spawn"] = "forkserver" if hasattr(os, "fork") else "spawn"
#: This process's ends of the pipes to others. One that holds them too would hide from those that this one has died.
_ENDS: weakref.WeakSet[Connection] = weakref.WeakSet()


def launch(
    target: Callable[..., None], arguments: tuple[object, ...], ends: tuple[Connection, ...]
) -> BaseProcess:
    """Start a process; signals reach it as soon as it says how to take them.

    Args:
        target: a function of some module, which is called there.
        arguments: those, with its ends of pipes among them.
        ends: this process's ends of the same pipes.
    """
    _ENDS.update(ends)
    context: ForkContext | Server
    if can_fork():
        set_numba_up()
        context = multiprocessing.get_context("fork")
    else:
        context = fork_server()
    process: BaseProcess = context.Process(target=target, args=arguments, daemon=True)
    with without_main(), block_signals():
        process.start()
    return process


def prepare() -> None:
    """Start the server early if processes will come from it: it takes a second, and others can work meanwhile."""
    if not can_fork():
        fork_server()


def lock() -> AbstractContextManager[object]:
    """Return a lock that processes of either origin take; a run ends with a process that is killed while it has it."""
    with safe_path():  # it starts the process that tidies up
        return multiprocessing.get_context(SERVER).Lock()


def can_fork() -> bool:
    """Return whether this process may be forked: no GPU, and one thread, or two with the one that counts signals."""
    if not hasattr(os, "fork") or not TASKS.is_dir() or torch.cuda.is_initialized():
        return False
    known = [thread for thread in threading.enumerate() if thread.name == WATCHER]
    return threading.current_thread() is threading.main_thread() and len(
        [*TASKS.iterdir()]
    ) == 1 + len(known)


def fork_server() -> Server:
    """Start the server that processes come from, once; it has torch loaded. Windows has none and starts new Pythons."""
    if SERVER == "spawn":
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker  # Windows has no forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlplug_core.loop.preload"])
    with safe_path():
        resource_tracker.ensure_running()  # which lets signals through, so not in the next block
    with safe_path(), block_signals():
        forkserver.ensure_running()
    return context


def set_numba_up() -> None:
    """Call a loop that numba compiled: the first call loads 40 MiB, which children then share."""
    room().warm_up()


def _let_go() -> None:
    """Close inherited files in every fork of this process."""
    for end in _ENDS:
        if not end.closed:
            end.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def safe_path() -> Iterator[None]:
    """Start Python processes that import nothing from the working directory, such as a `torch.py` there.

    A process gets the caller's own `sys.path` with its first message, so that it finds the same plugins.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not import the caller's `__main__` again: workers need nothing from it, and a script
    without an `if __name__ == "__main__"` guard would start training once more in each of them."""
    main = sys.modules["__main__"]
    hidden: dict[str, object] = {
        name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__
    }
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(hidden)
