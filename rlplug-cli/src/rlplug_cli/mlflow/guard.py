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


def main(command: list[str], patience: float) -> int:
    """Run `command` until it ends or until stdin closes; this process must lead its process group.

    `patience` is how many seconds lie between asking the group to end and ending it. Returns the exit code as a shell
    has it: 128 and the signal's number where a signal ended the command.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # the group's signal reaches this process too
    threading.Thread(target=_end_with_parent, args=(child, patience), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _end_with_parent(child: subprocess.Popen[bytes], patience: float) -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], float(sys.argv[1])))
