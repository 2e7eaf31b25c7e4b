"""Runs a command in its own process group and ends the whole group when the process that started it is gone.

A server's grandchildren outlive a parent that is killed, but a pipe closes whenever the parent ends.
A separate process watches the pipe, because Ray, for example, kills the children of a killed parent too. On Windows a
thread of this process does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

#: Seconds between two checks of a command that was asked to end.
TICK = 0.05


def main(command: list[str], patience: float) -> int:
    """Run `command` until it ends or until stdin closes; this process must lead its process group.

    `patience` is the number of seconds between SIGTERM and SIGKILL. Returns the exit code like a shell: 128 plus the
    signal's number if a signal ended the command.
    """
    if not hasattr(os, "fork"):
        return _run_without_groups(command, patience)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # The group's signal reaches these processes too.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    watcher = os.fork()
    if not watcher:
        _end_with_parent(child.pid, patience)
    code = child.wait()
    os.kill(watcher, signal.SIGKILL)
    os.waitpid(watcher, 0)
    return code if code >= 0 else 128 - code


def _run_without_groups(command: list[str], patience: float) -> int:
    """Run `command` as `main` does, on Windows; it gets Ctrl-Break instead of SIGTERM."""
    group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, creationflags=group)

    def end_with_parent() -> None:
        while os.read(0, 1024):
            pass
        child.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            kill_tree(child)

    threading.Thread(target=end_with_parent, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and all processes that it started, at once."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return
    import psutil  # only Windows needs it here

    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for member in (*parent.children(recursive=True), parent):
            with suppress(psutil.NoSuchProcess):
                member.kill()


def _end_with_parent(child: int, patience: float) -> NoReturn:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(TICK)
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("SIGKILL also ends this process")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], float(sys.argv[1])))
