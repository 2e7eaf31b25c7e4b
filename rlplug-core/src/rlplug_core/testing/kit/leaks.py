"""The check that nothing goes on running: no thread, no process."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import Subject


def leaks(subject: Subject) -> None:
    """After a run no thread and no process of it is left."""
    threads = set(threading.enumerate())
    processes = children()
    _run(subject)
    gc.collect()
    if left := [thread.name for thread in threading.enumerate() if thread not in threads]:
        raise Failed(
            f"a run leaves the thread {left[0]!r} behind; end it, or start it where it is needed"
        )
    if left_processes := children() - processes:
        raise Failed(f"a run leaves the process {min(left_processes)} behind; end it")


def _run(subject: Subject) -> None:
    Trial(subject, subject.home_env()).run(subject.horizon.turns)


def children() -> set[int]:
    """The ids of this process's children; empty where the system does not say."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for file in lists for number in file.read_text(encoding="ascii").split()}
