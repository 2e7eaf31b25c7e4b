"""Submits the unfinished tasks of a sweep to Slurm, as one array job with a script in the sweep's directory."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rlplug_cli.file_checks import refuse_irregular
from rlplug_cli.sweep.manifest import Task, lock_directory, open_sweep
from rlplug_cli.sweep.progress import RunProgress
from rlplug_cli.sweep.task import LOGS
from rlplug_core.config import make_directory, read_json, replace_file
from rlplug_core.errors import BadFile, MissingPackage, RlplugError, UsageError, plain
from rlplug_core.runs import shell_word

SCRIPT = "slurm.sh"
#: The file with the number of the last job.
SUBMITTED = "slurm.json"
#: Seconds between the signal to save a checkpoint and the time limit of a task.
WARNING = 120
#: States of a job that has not ended.
ACTIVE = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "REQUEUED",
    "CONFIGURING",
    "COMPLETING",
    "REQUEUE_HOLD",
)


def script(
    directory: Path,
    indices: Sequence[int],
    cores: int,
    options: Sequence[str],
) -> str:
    """Return the script of the array job for the tasks at `indices`.

    A task that is preempted or loses its node goes back to the queue (`--requeue`). Before its time limit it gets
    SIGUSR1, saves a checkpoint and requeues itself. Both times it resumes from its last checkpoint.

    Args:
        cores: the most cores that one task needs.
        options: further options of `sbatch`.

    Raises:
        UsageError: an option or the directory contains a line break, which would add a line to the script.
    """
    if any(not option.isprintable() for option in options):
        raise UsageError(
            "--sbatch takes one option of sbatch in one line, such as --sbatch --partition=long"
        )
    if not str(directory).isprintable():
        raise UsageError(
            f"{str(directory)!r} has characters that Slurm cannot take; choose another --out"
        )
    name = f"rlplug-{directory.name}"
    lines = [
        f"--job-name={shlex.quote(name)}",
        f"--array={','.join(map(str, indices))}",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{WARNING}",
        f"--cpus-per-task={cores}",
        f"--output={shlex.quote(str(directory))}/{LOGS}/%a.txt",
        *options,
    ]
    command = shlex.join([sys.executable, "-P", "-m", "rlplug_cli.sweep.task", str(directory)])
    return "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), f"exec {command}", ""])


def submit(
    directory: Path,
    indices: Sequence[int],
    cores: int,
    options: Sequence[str],
) -> str:
    """Submit the tasks at `indices` and return the job's number.

    Raises:
        UsageError: an earlier job has not ended, or a log is a link. MissingPackage: Slurm is not installed here.
        RlplugError: Slurm refuses the job, or the directory of logs is a link.
    """
    directory = directory.absolute()
    if job := active_job(directory):
        raise UsageError(
            f"job {job} of {directory} has not ended; wait for it, or type 'scancel {job}' first"
        )
    make_directory(directory / LOGS)
    for index in indices:
        refuse_irregular(directory / LOGS / f"{index}.txt")  # Slurm itself opens these
    replace_file(directory / SCRIPT, script(directory, indices, cores, options).encode())
    answer = _run_slurm(["sbatch", "--parsable", str(directory / SCRIPT)])
    if answer.returncode:
        raise RlplugError(f"sbatch refused {directory / SCRIPT}: {plain(answer.stderr)}")
    job = answer.stdout.strip().partition(";")[0]
    replace_file(directory / SUBMITTED, json.dumps({"job": job}).encode())
    return job


def submit_sweep(
    directory: Path,
    tasks: Sequence[Task],
    costs: Callable[[Task], int],
    options: Sequence[str],
) -> str:
    """Submit the unfinished tasks of a sweep and return a sentence about it.

    Raises:
        UsageError, MissingPackage, RlplugError: as `submit`.
    """
    with lock_directory(directory):
        sweep = open_sweep(directory, "sweep", tasks)
        unfinished = []
        for index, task in enumerate(sweep.tasks):
            progress = RunProgress(directory / task.name)
            progress.read_status()
            if not progress.is_over:
                unfinished.append(index)
        if not unfinished:
            return f"all {len(sweep.tasks)} runs of {directory} are finished: rlplug compare {shell_word(directory)}"
        cores = max(costs(sweep.tasks[index]) for index in unfinished)
        job = submit(directory, unfinished, cores, options)
    return (
        f"job {job}: {len(unfinished)} of {len(sweep.tasks)} runs, script {directory / SCRIPT}; when the job has "
        f"ended, the same command submits the unfinished runs again"
    )


def active_job(directory: Path) -> str:
    """Return the number of the directory's last job if it has not ended, else "".

    Raises:
        BadFile: the file with the number is damaged.
    """
    path = directory / SUBMITTED
    if not path.exists():
        return ""
    content = read_json(path)
    job = content.get("job") if isinstance(content, dict) else None
    if not isinstance(job, str) or not job.isalnum():
        raise BadFile(path, "it holds no job number; delete it")
    answer = _run_slurm(["scontrol", "--oneliner", "show", "job", job])
    words = answer.stdout.split()
    states = [word.partition("=")[2] for word in words if word.startswith("JobState=")]
    return job if any(state in ACTIVE for state in states) else ""


def _run_slurm(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingPackage(
            f"'{command[0]}' is not installed here; type --on slurm on a machine that submits to Slurm"
        ) from error
