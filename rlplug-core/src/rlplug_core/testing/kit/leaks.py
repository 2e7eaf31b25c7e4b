"""The check that no thread and no process continues to run."""

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
    # Without a name for it, the run can be collected.
    Trial(subject, subject.home_env()).run(subject.horizon.turns)
    gc.collect()
    if left := [thread.name for thread in threading.enumerate() if thread not in threads]:
        raise Failed(
            f"the thread {left[0]!r} still runs after a run; end it, or start it only if needed"
        )
    if left_processes := children() - processes:
        raise Failed(f"the process {min(left_processes)} still runs after a run; end it")


def children() -> set[int]:
    """Return the ids of the children of this process; empty on systems without /proc."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for file in lists for number in file.read_text(encoding="ascii").split()}
