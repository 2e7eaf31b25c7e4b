"""Functions that tests of kills run in new processes; imports little, so that a hundred of them start quickly."""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_core.loop.process_spawner import without_main
from rlplug_core.runs.checkpoint import Checkpoints

#: File operations before which a writer may die.
CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def start_process(target: Any, *arguments: Any) -> BaseProcess:
    """Start a process from the fork server, which has torch loaded and does not run the main module again."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["rlplug_core.loop.worker", "rlplug_core.runs.checkpoint"])
    # A daemon: a test that fails before it kills a writer would otherwise wait for it forever.
    process = context.Process(target=target, args=arguments, daemon=True)
    with without_main():
        process.start()
    return process


def write_forever(directory: str, start: int, acknowledge: Connection) -> None:
    """Write checkpoints one after the other, and replace the best one each time."""
    for step in range(start, 10**9):
        content = {"learner": {"step": step, "weights": np.full(5_000, step)}}
        Checkpoints(Path(directory), keep=2).save("step", step, content, {})
        Checkpoints(Path(directory)).save("best", 1, content, {})
        acknowledge.send_bytes(str(step).encode())


def write_once(directory: str, end_at: int) -> None:
    """Replace the best checkpoint and add a newer one, but die before the file operation of this number."""
    operations = 0

    def count(event: str, arguments: Any) -> None:
        nonlocal operations
        if event in CHANGES and directory in os.path.realpath(arguments[0]):
            operations += 1
            if operations == end_at:
                os._exit(1)

    sys.addaudithook(count)
    checkpoints = Checkpoints(Path(directory), keep=1)
    checkpoints.save("best", 1, {"learner": {"version": 2}}, {})
    checkpoints.save("step", 2, {"learner": {"version": 2}}, {})
