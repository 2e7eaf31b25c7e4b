"""Runs a command in its own process group and ends the whole group when the process that started it is gone.

A server's grandchildren outlive a parent that is killed; a pipe does not: its other end closes however the parent ends.
A separate process watches the pipe, because Ray, for example, kills the children of a killed parent too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

#: Seconds between two looks at a command that was asked to end.
TICK = 0.05


def main(command: list[str], patience: float) -> int:
    """Run `command` until it ends or until stdin closes; this process must lead its process group.

    `patience` is the number of seconds between SIGTERM and SIGKILL. Returns the exit code like a shell: 128 plus the
    signal's number if a signal ended the command.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(
        signal.SIGTERM, lambda number, frame: None
    )  # the group's signal reaches these processes too
    watcher = os.fork()
    if not watcher:
        _end_with_parent(child.pid, patience)
    code = child.wait()
    os.kill(watcher, signal.SIGKILL)
    os.waitpid(watcher, 0)
    return code if code >= 0 else 128 - code


def _end_with_parent(child: int, patience: float) -> NoReturn:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(TICK)
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("this process is of its group")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], float(sys.argv[1])))
