"""The MLflow hook plugin: starts the process that mirrors a run, and ends it. Training never waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_core import plugins
from rlplug_core.errors import warn
from rlplug_core.plugins import hookimpl
from rlplug_core.runs import shell_word

if TYPE_CHECKING:
    from rlplug_core.runs import Run

#: Environment variable: how many seconds the end of a run waits for the rest to be sent.
DRAIN = "RLPLUG_MLFLOW_DRAIN_SECONDS"
#: Seconds before a message explains the wait.
NOTICE = 2.0

_senders: dict[Path, Sender] = {}
#: The process that has no run yet, if there is one.
_waiting: list[Sender] = []


@contextmanager
def early_sender() -> Iterator[None]:
    """Start the process before the run, so that it imports MLflow while this process imports torch.

    It takes the first run of the block; without a run it ends with the block.
    """
    for record in plugins.records():
        if (record.group, record.id, record.status) == ("hooks", "mlflow", "ok"):
            _waiting.append(Sender())
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().end()


@hookimpl
def rlplug_run_start(run: Run) -> None:
    """Start to mirror the run."""
    sender = _waiting.pop() if _waiting else Sender()
    sender.follow(run.path)
    _senders[run.path] = sender


@hookimpl
def rlplug_run_end(run: Run) -> None:
    """Send the rest, for a bounded time."""
    sender = _senders.pop(run.path, None)
    if sender is not None and not sender.drain() and run.path.exists():
        warn(
            f"MLflow does not have all of this run yet; 'rlplug sync {shell_word(run.path)}' sends the rest"
        )


class Sender:
    """The process `rlplug_cli.mlflow.sender`, which sends the run of `follow`; its output goes to stderr."""

    def __init__(self) -> None:
        self.seconds = float(os.environ.get(DRAIN, "30"))
        # -P: nothing is imported from the working directory. A separate process group keeps the
        # signals of a terminal away; the pipe's end tells it that this process is gone. The session is the run's, since
        # Linux compares the niceness of processes only within a session.
        words = [
            sys.executable,
            "-P",
            "-m",
            "rlplug_cli.mlflow.sender",
            str(self.seconds),
        ]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        self._relay = threading.Thread(target=self._relay_output, name="rlplug-mlflow", daemon=True)

    def follow(self, run: Path) -> None:
        """Send this run from now on.

        Call it after the run has started its processes: no fork is safe while the thread reads.
        """
        self._relay.start()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the process has failed and has said why
            self.process.stdin.write(f"{json.dumps(str(run))}\n")
            self.process.stdin.flush()

    def drain(self) -> bool:
        """Wait until everything is sent; return False if the time is up or the user presses Ctrl-C."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            try:
                code = self.process.wait(min(NOTICE, self.seconds))
            except subprocess.TimeoutExpired:
                if self.seconds <= NOTICE:
                    raise
                warn(
                    f"sending the rest of the run to MLflow, for at most {self.seconds:.0f} s; Ctrl-C skips it"
                )
                code = self.process.wait(self.seconds - NOTICE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self.process.kill()
            code = self.process.wait()
        self._close()
        return code == 0

    def end(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        if self._relay.is_alive():
            self._relay.join()
        self.process.stdout.close()

    def _relay_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            warn(line)
