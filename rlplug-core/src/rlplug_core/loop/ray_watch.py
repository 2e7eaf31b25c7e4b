"""Report the end of a run that Ray ended: its library exits the process when the raylet of its node is gone.

Ray then calls `_exit`, which runs no handler and raises no exception. So a second process waits for the end of the
run's process and prints one sentence. It imports nothing outside of the standard library.
"""

from __future__ import annotations

import subprocess
import sys

SENTENCE = (
    "rlplug: the run's process was killed, or Ray ended it because the raylet of its node is gone (its last words "
    "are in raylet.out, among the logs of Ray); continue from the last checkpoint: rlplug resume RUN"
)


class RayWatch:
    """A process that prints `SENTENCE` on stderr if this process ends before `close`."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        # A separate session, so that Ctrl-C and a closed terminal do not end the watch before the run.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def close(self) -> None:
        """End the watch without a sentence."""
        self._process.communicate(b"left")


if __name__ == "__main__":
    if not sys.stdin.buffer.read():  # the pipe ends with the run's process
        print(SENTENCE, file=sys.stderr)  # noqa: T201  # this sentence is all that the process does
