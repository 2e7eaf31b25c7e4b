"""Processes are forks of a run without other threads; otherwise a server starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from rlplug_core.errors import WorkerFailed
from rlplug_core.loop import process_spawner
from rlplug_core.loop.child_process import Child, post
from tests.core.fakes import SECOND_THREAD
from tests.core.loop.test_async_processes import group
from tests.waiting import until

#: Starts two processes, prints whether each is a fork of this one, and lives until its stdin ends.
SCRIPT = """
import os, sys
from rlplug_core.loop.child_process import Child
from tests.core.loop.test_process_spawner import ReportsParent
children = [Child("child", rank, ReportsParent, None, 60.0) for rank in (0, 1)]
print([child.receive() == ("parent", os.getpid()) for child in children], flush=True)
sys.stdin.read()
"""
#: The message about a slow start waits in a thread while the processes of a run start.
NOTICE = """
from rlplug_core.loop.notices import say_later
say_later("starting the environments and the processes of the run")
"""


class ReportsParent:
    """Reports the parent of its process, and lives as long as the run."""

    def __init__(self, task: None, parent: Connection) -> None:
        self.parent = parent

    def run(self) -> None:
        post(self.parent, ("parent", os.getppid()))
        threading.Event().wait()


class Fails:
    """The work of a child that fails at once."""

    def __init__(self, task: object, parent: Connection) -> None: ...

    def run(self) -> None:
        raise ValueError("a broken environment")


def test_message_to_a_failed_child_raises_its_exception() -> None:
    child = Child("actor", 0, Fails, None, 60.0)
    child.process.join()
    with pytest.raises(WorkerFailed, match="actor 0 failed: ValueError: a broken environment"):
        child.send("more")
    child.end()


@pytest.mark.parametrize(
    ("thread", "is_fork"),
    [("", True), (NOTICE, True), (SECOND_THREAD, False)],
    ids=["the run", "the run next to a notice", "a server"],
)
def test_forks_only_without_threads_and_children_end_with_the_run(thread: str, is_fork: bool) -> None:
    code = f"{thread}\n{SCRIPT}"
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environ,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"{[is_fork, is_fork]}\n"
            assert len(group(process.pid)) >= 3
        finally:
            process.kill()  # it would wait for its children, which ignore the signals that end them
        until(lambda: not group(process.pid))


def test_cannot_fork_with_gpu_or_unknown_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tasks = tmp_path / "task"
    (tasks / "1").mkdir(parents=True)
    monkeypatch.setattr(process_spawner, "TASKS", tasks)
    assert process_spawner.can_fork()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert not process_spawner.can_fork()
    monkeypatch.undo()
    monkeypatch.setattr(process_spawner, "TASKS", tmp_path / "none")
    assert not process_spawner.can_fork()
