"""Hands the missing tasks of a sweep to Slurm, as one array job whose script is written into the sweep's directory."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rlplug_cli.sweep.manifest import Task, kept, locked
from rlplug_cli.sweep.progress import Standing
from rlplug_core.config.files import from_json, replace
from rlplug_core.errors import MissingPackage, RlplugError, UsageError, plain
from rlplug_core.runs.files import shell_word

SCRIPT = "slurm.sh"
SUBMITTED = "slurm.json"
#: Seconds before the end of its time at which a task is told to save a checkpoint.
WARNING = 120
#: States in which a job is not over.
AT_WORK = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "REQUEUED",
    "CONFIGURING",
    "COMPLETING",
    "REQUEUE_HOLD",
)


def script(directory: Path, places: Sequence[int], cores: int, options: Sequence[str]) -> str:
    """The array job: the task at each of `places` in the sweep, with as many cores as one needs at most.

    What preempts a task, or takes its node, puts it back into the queue (`--requeue`); before its time is up it gets
    SIGUSR1, saves a checkpoint and goes back itself. Either way it goes on where it was.

    Raises:
        UsageError: an option holds the end of a line.
    """
    if any(not option.isprintable() for option in options):
        raise UsageError(
            "--sbatch takes one option of sbatch in one line, such as --sbatch --partition=long"
        )
    name = f"rlplug-{directory.name}"
    lines = [
        f"--job-name={shlex.quote(name)}",
        f"--array={','.join(map(str, places))}",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{WARNING}",
        f"--cpus-per-task={cores}",
        f"--output={shlex.quote(str(directory))}/logs/%a.txt",
        *options,
    ]
    command = shlex.join([sys.executable, "-P", "-m", "rlplug_cli.sweep.task", str(directory)])
    return "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), f"exec {command}", ""])


def submit(directory: Path, places: Sequence[int], cores: int, options: Sequence[str]) -> str:
    """Submit the tasks at `places` and return the job's number.

    Raises:
        UsageError: those of an earlier job are not over. MissingPackage: there is no Slurm. RlplugError: it refuses.
    """
    directory = directory.absolute()
    if job := at_work(directory):
        raise UsageError(
            f"job {job} of {directory} is not over; wait for it, or 'scancel {job}' first"
        )
    (directory / "logs").mkdir(exist_ok=True)
    replace(directory / SCRIPT, script(directory, places, cores, options).encode())
    said = _ask(["sbatch", "--parsable", str(directory / SCRIPT)])
    if said.returncode:
        raise RlplugError(f"sbatch refused {directory / SCRIPT}: {plain(said.stderr)}")
    job = said.stdout.strip().partition(";")[0]
    replace(directory / SUBMITTED, json.dumps({"job": job}).encode())
    return job


def hand_over(
    directory: Path, tasks: Sequence[Task], costs: Callable[[Task], int], options: Sequence[str]
) -> str:
    """Submit what a sweep with `tasks` lacks, and return a sentence about it; see `submit` for what is raised."""
    with locked(directory):
        sweep = kept(directory, "sweep", tasks)
        missing = [
            place
            for place, task in enumerate(sweep.tasks)
            if Standing(directory / task.name, 1).settle() != "finished"
        ]
        if not missing:
            return f"all {len(sweep.tasks)} runs of {directory} are finished: rlplug compare {shell_word(directory)}"
        cores = max(costs(sweep.tasks[place]) for place in missing)
        job = submit(directory, missing, cores, options)
    return (
        f"job {job}: {len(missing)} of {len(sweep.tasks)} runs, script {directory / SCRIPT}; the same command submits "
        f"again what is missing then"
    )


def at_work(directory: Path) -> str:
    """Return the number of the directory's last job, if one of its tasks is not over."""
    if not (directory / SUBMITTED).exists():
        return ""
    job = str(from_json(directory / SUBMITTED)["job"])
    said = _ask(["scontrol", "--oneliner", "show", "job", job])
    states = [
        word.partition("=")[2] for word in said.stdout.split() if word.startswith("JobState=")
    ]
    return job if any(state in AT_WORK for state in states) else ""


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingPackage(
            f"no '{command[0]}' here; type --on slurm on a machine that submits to Slurm"
        ) from error
