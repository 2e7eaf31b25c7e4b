"""Runs tasks of a sweep as processes: on this machine, on a Ray node or in a Slurm job.

    python -m rlplug_cli.sweep.task DIRECTORY

A Slurm job calls this command, which runs the task at index SLURM_ARRAY_TASK_ID. A job that reaches its time limit
saves a checkpoint and goes back to the queue.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlplug_cli.file_checks import refuse_link
from rlplug_cli.sweep.manifest import Sweep, Task
from rlplug_cli.sweep.progress import RunProgress
from rlplug_core.config import hold_directory, open_regular
from rlplug_core.errors import RlplugError, UsageError

#: Seconds that a run has to save a checkpoint after it was asked to stop.
PATIENCE = 60.0
#: Seconds between two checks of a run.
TICK = 0.5
LOGS = "logs"


def command_words(directory: Path, task: Task) -> list[str]:
    """Return the words of the command that starts a task's run, or resumes it.

    Raises:
        UsageError: the run's directory is a link, or has records but no `config.json`.
    """
    path = directory / task.name
    refuse_link(path)
    if RunProgress(path).read_status() != "waiting":
        return ["resume", str(path)]
    if any((path / name).exists() for name in ("journal.jsonl", "checkpoints")):
        raise UsageError(
            f"{path} has a run's records but no config.json; restore config.json, or delete the directory"
        )
    options = [*task.words, "--seed", str(task.seed), "--name", task.name, "--out", str(directory)]
    return ["run", task.algorithm, task.env, *options]


def start_with_guard(
    words: Sequence[str],
    log: Path,
    pass_fds: Sequence[int] = (),
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `rlplug` with `words` under a guard, which stops it when its standard input is closed.

    Its output is appended to the file `log`. The other arguments are those of `Popen`.
    """
    python = [sys.executable, "-P", "-m"]
    guard = [*python, "rlplug_cli.mlflow.process_guard", str(PATIENCE)]
    with hold_directory(log.parent) as logs, open_regular(logs / log.name, "ab") as file:
        return subprocess.Popen(
            [*guard, *python, "rlplug_cli", *words],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
            pass_fds=pass_fds,
            cwd=cwd,
            env=env,
        )


def log_path(directory: Path, name: str) -> Path:
    return directory / LOGS / f"{name}.txt"


def stop_mark(directory: Path, name: str) -> Path:
    """Return the file that tells a run on another machine to save a checkpoint and end."""
    return directory / LOGS / f"{name}.stop"


def find_task(directory: Path, index: int) -> Task:
    """Return the task at this index.

    Raises:
        RlplugError: the task does not exist.
    """
    sweep = Sweep.read(directory)
    if sweep is None or index >= len(sweep.tasks):
        raise RlplugError(
            f"{directory} has no task {index}; is the directory shared with this machine?"
        )
    return sweep.tasks[index]


def run_on_node(
    directory: str,
    name: str,
    words: Sequence[str],
    cwd: str,
    settings: Mapping[str, str],
) -> int:
    """Run a task on a Ray node and return the exit code.

    If the node is lost, Ray calls this function again on another node, and the run resumes from its last checkpoint.

    Args:
        words: the command's words, for a run that has not started yet.
        cwd: the working directory.
        settings: environment variables to set.
    """
    run = Path(directory) / name
    started = RunProgress(run).read_status() != "waiting"
    process = start_with_guard(
        ["resume", str(run)] if started else words,
        log_path(Path(directory), name),
        cwd=cwd,
        env={**os.environ, **settings},
    )
    assert process.stdin is not None
    mark = stop_mark(Path(directory), name)
    while process.poll() is None:
        if mark.exists():
            process.stdin.close()  # the guard then stops the run
        time.sleep(TICK)
    return int(process.returncode)


def run_in_slurm(directory: Path, index: int) -> int:
    """Run a task of a Slurm array: forward Slurm's signals, and requeue the job when its time is up."""
    words = command_words(directory, find_task(directory, index))
    process = subprocess.Popen([sys.executable, "-P", "-m", "rlplug_cli", *words])
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: process.send_signal(number))
    code = process.wait()
    if code == 128 + signal.SIGUSR1:  # the run saved a checkpoint before the time limit
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        return subprocess.run(["scontrol", "requeue", job], check=False).returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run_in_slurm(Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"])))
