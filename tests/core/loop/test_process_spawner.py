"""Processes are forks of a run in which nothing else is at work, and share what it has loaded; else of a server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from rlplug_core.loop import process_spawner
from rlplug_core.loop.worker import post, run_child
from tests.core.fakes import SECOND_THREAD
from tests.core.loop.test_async_processes import group
from tests.waiting import until

#: Starts two processes, says whether each is a fork of this one, and lives until its stdin ends.
SCRIPT = """
import os, sys
from rlplug_core.loop.async_processes import Remote
from rlplug_core.loop.worker import fetch
from tests.core.loop.test_process_spawner import tell
remotes = [Remote(rank, tell, rank) for rank in (0, 1)]
print([fetch(remote.connection) == os.getpid() for remote in remotes], flush=True)
sys.stdin.read()
"""


def tell(rank: int, parent: Connection, lifeline: Connection) -> None:
    """In a process: say whose child it is, and live as long as the run does."""

    def run() -> None:
        post(parent, os.getppid())
        threading.Event().wait()

    run_child(run, parent, lifeline)


@pytest.mark.parametrize("forked", [True, False], ids=["the run", "a server"])
def test_a_run_is_forked_while_it_has_no_other_thread_and_no_fork_hides_that_it_died(forked: bool) -> None:
    code = SCRIPT if forked else f"{SECOND_THREAD}\n{SCRIPT}"
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, env=environ, cwd=Path(__file__).parents[3],
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == f"{[forked, forked]}\n"
        assert len(group(process.pid)) >= 3
        process.kill()
        until(lambda: not group(process.pid))


def test_where_threads_cannot_be_counted_or_a_gpu_is_at_work_a_server_does_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tasks = tmp_path / "task"
    (tasks / "1").mkdir(parents=True)
    monkeypatch.setattr(process_spawner, "TASKS", tasks)
    assert process_spawner.can_fork()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert not process_spawner.can_fork()
    monkeypatch.undo()
    monkeypatch.setattr(process_spawner, "TASKS", tmp_path / "none")
    assert not process_spawner.can_fork()
