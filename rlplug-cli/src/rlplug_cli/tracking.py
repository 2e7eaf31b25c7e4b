"""The MLflow hook plugin: a thread that mirrors the run's journal while it trains. Training never waits for it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_core.hooks import hookimpl

if TYPE_CHECKING:
    from rlplug_cli.mirror import Mirror
    from rlplug_core.run import Run

#: Seconds between two looks at the journal, and the longest wait after a failure.
EVERY, LONGEST = 1.0, 60.0
#: Seconds that the end of a run waits for the rest to be sent; the environment may say otherwise.
DRAIN = "RLPLUG_MLFLOW_DRAIN_SECONDS"

_senders: dict[Path, Sender] = {}


@hookimpl
def rlplug_run_start(run: Run) -> None:
    """Start to mirror the run."""
    from rlplug_cli.mirror import Mirror

    _senders[run.path] = Sender(Mirror(run.path))
    _senders[run.path].start()


@hookimpl
def rlplug_run_end(run: Run) -> None:
    """Send the rest, for a bounded time."""
    sender = _senders.pop(run.path, None)
    if sender is None:
        return
    if not sender.drain(float(os.environ.get(DRAIN, "30"))):
        _say(f"MLflow has not got all of this run yet; `rlplug sync {run.path}` sends the rest")


class Sender(threading.Thread):
    """Sends what is new about once a second; waits longer and longer while MLflow does not answer."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(name="rlplug-mlflow", daemon=True)
        self.mirror = mirror
        self.failure = ""
        self._wake = threading.Event()
        self._ending = False

    def run(self) -> None:
        wait = EVERY
        while True:
            sent = self._try()
            if sent:
                wait = EVERY
                continue
            if self._ending and not self.failure:
                break
            if self.failure:
                wait = min(2 * wait, LONGEST)
            self._wake.wait(wait)
            self._wake.clear()
        self.mirror.close()

    def drain(self, seconds: float) -> bool:
        """Wait until all is sent; False where it is not after `seconds`, or the user will not wait."""
        self._ending = True
        self._wake.set()
        try:
            self.join(seconds)
        except KeyboardInterrupt:
            return False
        return not self.is_alive()

    def _try(self) -> bool:
        """Send one batch; a failure is said once, and the journal keeps what was not sent."""
        try:
            sent = self.mirror.send()
        except Exception as error:  # noqa: BLE001 - whatever MLflow raises, the run must not notice
            said, self.failure = bool(self.failure), " ".join(str(error).split())[:200] or type(error).__name__
            if not said:
                uri = self.mirror.state.tracking_uri
                _say(f"MLflow at {uri} takes nothing now ({self.failure}); training goes on, the journal keeps all")
            return False
        self.failure = ""
        return sent


def _say(sentence: str) -> None:
    print(f"rlplug: {sentence}", file=sys.stderr)
