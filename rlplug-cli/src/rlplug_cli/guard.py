"""Runs a command in its own process group and ends the whole group when the process that started it is gone.

A server's grandchildren outlive a parent that is killed; a pipe does not: its other end closes however the parent ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

#: Seconds between asking the group to end and ending it.
PATIENCE = 5.0


def main(command: list[str]) -> int:
    """Run `command` until it ends or until stdin closes; this process must lead its process group."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # the group's signal reaches this process too
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    return child.wait()


def _end_with_parent(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
