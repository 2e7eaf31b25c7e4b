"""One task of a sweep, carried out wherever this is: on a Ray node, in a Slurm job. Its run begins, or goes on.

    python -m rlplug_cli.sweep.task DIRECTORY [NAME]

Without a name it is the task whose place in the sweep is SLURM_ARRAY_TASK_ID. A Slurm job that ends because its time is
up is put back into the queue; what it had come to is in the run's checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlplug_cli.sweep.manifest import Sweep, Task
from rlplug_cli.sweep.progress import Standing
from rlplug_core.config.files import opened
from rlplug_core.errors import RlplugError, UsageError

#: Seconds that a run has to save a checkpoint when it is stopped.
PATIENCE = 60.0
#: Seconds between two looks at a run.
TICK = 0.5
LOGS = "logs"


def words_of(directory: Path, task: Task) -> list[str]:
    """The words to type so that a task's run begins, or goes on."""
    path = directory / task.name
    if Standing(path, 1).settle() != "missing":
        return ["resume", str(path)]
    if any((path / kept).exists() for kept in ("journal.jsonl", "checkpoints")):
        raise UsageError(
            f"{path} has a run's record and no config.json; bring that back, or delete the directory"
        )
    shutil.rmtree(path, ignore_errors=True)  # what was killed before it had a configuration
    words = ["run", task.algorithm, task.env, *task.words, "--seed", str(task.seed)]
    return [*words, "--name", task.name, "--out", str(directory)]


def log_of(directory: Path, name: str) -> Path:
    return directory / LOGS / f"{name}.txt"


def stop_mark(directory: Path, name: str) -> Path:
    """The file that tells a run on another machine, which shares the directory, to save a checkpoint and end."""
    return directory / LOGS / f"{name}.stop"


def task_of(directory: Path, name: str | int) -> Task:
    """The task of that name, or of that place.

    Raises:
        RlplugError: there is no such task.
    """
    sweep = Sweep.read(directory)
    for place, task in enumerate(sweep.tasks if sweep else ()):
        if name in (task.name, place):
            return task
    raise RlplugError(f"{directory} has no task {name}; is the directory shared with this machine?")


def on_node(directory: str, name: str, place: str, settings: Mapping[str, str]) -> int:
    """Carry out a task on a Ray node, in the directory `place` and with these environment variables; its exit code.

    Called again on another node after this one was lost, it goes on from the run's last checkpoint.
    """
    whole = Path(directory)
    task = task_of(whole, name)
    words = words_of(whole, task)
    python = [sys.executable, "-P", "-m"]
    command = [
        *python,
        "rlplug_cli.mlflow.process_guard",
        str(PATIENCE),
        *python,
        "rlplug_cli",
        *words,
    ]
    mark = stop_mark(whole, name)
    log = log_of(whole, name)
    log.parent.mkdir(exist_ok=True)
    with opened(log, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd=place,
            env={**os.environ, **settings},
        )
    assert process.stdin is not None
    while process.poll() is None:
        if mark.exists():
            process.stdin.close()  # which the guard takes as the end of this process
        time.sleep(TICK)
    return int(process.returncode)


def in_slurm(directory: Path, name: str | int) -> int:
    """Carry out a task of a Slurm array: hand on what Slurm sends, and go back into the queue when time is up."""
    words = words_of(directory, task_of(directory, name))
    process = subprocess.Popen([sys.executable, "-P", "-m", "rlplug_cli", *words])
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: process.send_signal(number))
    code = process.wait()
    if code == 128 + signal.SIGUSR1:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        return subprocess.run(["scontrol", "requeue", job], check=False).returncode
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str]) -> int:
    directory, *names = arguments
    return in_slurm(Path(directory), names[0] if names else int(os.environ["SLURM_ARRAY_TASK_ID"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
