"""Starts the processes of a run: forks of the run itself if that is safe, else forks of a server.

Windows has no forks: there each process is a new Python, which takes seconds.

A fork starts with everything that its parent has loaded, and shares its memory until one of them writes. It also gets a
copy of the parent's locks, and a lock that another thread held at that moment stays locked in the fork. So a run is
forked only while all of its threads are known to be safe. The server has one thread, but loads everything again.
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
from rlplug_core.loop.notices import WAITER
from rlplug_core.loop.signals import WATCHER, block_signals

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext

    Server: TypeAlias = ForkServerContext | SpawnContext

#: On Linux, a directory with an entry for each thread of this process, including threads of C libraries.
TASKS = Path("/proc/self/task")
#: The start method of processes that are not forks of this one.
SERVER: Literal["forkserver", "spawn"] = "forkserver" if hasattr(os, "fork") else "spawn"
#: This process's ends of its pipes. While another process has a copy of an end, the pipe outlives this process.
_ENDS: weakref.WeakSet[Connection] = weakref.WeakSet()


def launch(
    target: Callable[..., None],
    arguments: tuple[object, ...],
    ends: tuple[Connection, ...],
) -> BaseProcess:
    """Start a process; it gets signals as soon as it has installed its handlers.

    Args:
        target: a function of a module; the new process calls it.
        arguments: its arguments, including the new process's ends of pipes.
        ends: this process's ends of the same pipes.
    """
    _ENDS.update(ends)
    context: ForkContext | Server
    if can_fork():
        warm_up_numba()
        context = multiprocessing.get_context("fork")
    else:
        context = fork_server()
    process: BaseProcess = context.Process(target=target, args=arguments, daemon=True)
    with without_main(), block_signals():
        process.start()
    return process


def start_server_early() -> None:
    """Start the server if it will be needed: it takes a second, and other work can continue meanwhile."""
    if not can_fork():
        fork_server()


def lock() -> AbstractContextManager[object]:
    """Return a lock for forks of the run and of the server; if a process is killed while it holds it, the run ends."""
    with safe_path():  # it starts multiprocessing's resource tracker
        return multiprocessing.get_context(SERVER).Lock()


def can_fork() -> bool:
    """Return whether a fork is safe: no GPU is in use, and the only other threads count signals or wait to print."""
    if not hasattr(os, "fork") or not TASKS.is_dir() or torch.cuda.is_initialized():
        return False
    known = [thread for thread in threading.enumerate() if thread.name in (WATCHER, WAITER)]
    return threading.current_thread() is threading.main_thread() and len(
        [*TASKS.iterdir()]
    ) == 1 + len(known)


def fork_server() -> Server:
    """Start the server that forks processes, once, and return its context; the server has torch loaded.

    Windows has no such server: each process there is a new Python.
    """
    if SERVER == "spawn":
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker  # Windows has no forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlplug_core.loop.preload"])
    with safe_path():
        resource_tracker.ensure_running()  # it unblocks signals, so it is outside of the next block
    with safe_path(), block_signals():
        forkserver.ensure_running()
    return context


def warm_up_numba() -> None:
    """Call a loop that numba compiled: the first call loads 40 MiB, which children then share."""
    room().warm_up()


def _close_inherited_ends() -> None:
    """Close this process's ends of pipes in a fork of it."""
    for end in _ENDS:
        if not end.closed:
            end.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_ends)


@contextmanager
def safe_path() -> Iterator[None]:
    """In the block, start Python processes that import nothing from the working directory, such as a `torch.py` there.

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
    """In the block, start processes that do not import the caller's `__main__` again: workers do not need it.

    A script without an `if __name__ == "__main__"` guard would start training again in each of them.
    """
    main = sys.modules["__main__"]
    hidden: dict[str, object] = {
        name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__
    }
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(hidden)
