"""The process that mirrors one run in MLflow while it trains: `python -m rlplug_cli.mlflow.sender SECONDS`.

The first line of its stdin is the path of the run, as JSON; it may come seconds after the start. It is a process
because a thread that imports MLflow would hold the interpreter's lock and slow training down
(`docs/decisions/0011-mlflow-sender-process.md`). It ends when its stdin is closed: when the run ends or is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from rlplug_cli.mlflow import store
from rlplug_cli.mlflow.mirror import Busy, Mirror
from rlplug_cli.mlflow.skinny_import import import_mlflow
from rlplug_cli.mlflow.store import Damaged
from rlplug_core.errors import clean, plain
from rlplug_core.loop import STOPPING
from rlplug_core.runs import RunDirectory

#: Seconds between two checks of the journal, and the longest wait after a failure.
EVERY = 1.0
LONGEST = 60.0
#: Priority below training: on a busy core the sender gets about a tenth.
NICE = 10


def main(seconds: float) -> int:
    """Send the run that stdin names until stdin ends, then the rest for at most `seconds`; 0 if all was sent."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # the run handles it, and then ends this process
    if hasattr(os, "nice"):
        os.nice(NICE)
    run = "the run"
    try:
        import_mlflow()
        if store.sqlite_path(store.tracking_uri()) is not None:
            import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 - slow, so before the run
        line = sys.stdin.readline()
        if not line:
            return 0
        run = json.loads(line)
        return 0 if _send(Path(run), seconds) else 1
    except Exception as error:  # noqa: BLE001 - the user needs no traceback of this process
        _print(f"{run} is not sent to MLflow: {plain(str(error)) or type(error).__name__}")
        return 1


def _send(run: Path, seconds: float) -> bool:
    """Send a run until stdin ends, then the rest; return False if `seconds` are not enough for the rest."""
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    return Sender(_open_mirror(run, ended, seconds), ended, seconds).send()


def _open_mirror(run: Path, ended: threading.Event, seconds: float) -> Mirror:
    """Return the mirror of a run, after an earlier process has released it.

    Raises:
        Busy: that process still holds it `seconds` after the end of the run.
    """
    deadline = float("inf")
    while True:
        try:
            return Mirror(run, say=_print)
        except Busy:
            if ended.is_set():
                deadline = min(deadline, time.monotonic() + seconds)
            if time.monotonic() > deadline:
                raise
        _pause(ended, EVERY)


class Sender:
    """Sends new records about once a second; waits longer and longer while MLflow does not answer."""

    def __init__(
        self,
        mirror: Mirror,
        ended: threading.Event,
        seconds: float,
    ) -> None:
        self.mirror = mirror
        self.ended = ended
        self.seconds = seconds
        self.failure = ""
        self.done = False
        self.damaged = False

    def send(self) -> bool:
        """Send until the run has ended and all is sent; return False if that took too long."""
        wait = EVERY
        deadline = float("inf")
        while True:
            if not self.mirror.run.is_dir():
                return False  # deleted or moved, and the run has ended with it
            if self.ended.is_set():
                deadline = min(deadline, time.monotonic() + self.seconds)
            if self._send_batch():
                wait = EVERY
                continue
            if self.done:
                break
            if time.monotonic() > deadline or (self.damaged and self.ended.is_set()):
                return False  # only its owner can repair a damaged store
            wait = min(2 * wait, LONGEST) if self.failure else EVERY
            _pause(self.ended, min(wait, deadline - time.monotonic()))
        self.mirror.close()
        return True

    def _send_batch(self) -> bool:
        """Send one batch; report a failure once. The journal keeps the rest."""
        over = self.ended.is_set()
        try:
            sent = self.mirror.send()
            self.done = over and not sent and self._conclude()
        except Exception as error:  # noqa: BLE001 - MLflow may raise anything; training continues
            already_reported = bool(self.failure)
            self.failure = plain(str(error)) or type(error).__name__
            self.damaged = isinstance(error, Damaged)
            if not already_reported:
                uri = self.mirror.state.tracking_uri
                _print(
                    f"cannot reach MLflow at {uri} ({self.failure}); training continues and nothing is lost"
                )
            return False
        self.failure = ""
        self.damaged = False
        return sent

    def _conclude(self) -> bool:
        """End a killed run in MLflow; return False while a process still works on it."""
        if not self.mirror.is_over and RunDirectory(self.mirror.run).running():
            return False
        self.mirror.conclude()
        return True


def _pause(ended: threading.Event, seconds: float) -> None:
    """Wait `seconds`, or until the run ends; after its end at most `EVERY` seconds."""
    if ended.is_set():
        time.sleep(max(0.0, min(seconds, EVERY)))
    else:
        ended.wait(seconds)


def _print(sentence: str) -> None:
    with contextlib.suppress(OSError):  # the reader may be gone
        print(clean(sentence), flush=True)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
