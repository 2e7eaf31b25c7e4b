"""The manifest of a sweep: its tasks, and the lock that lets one process at a time run them.

`sweep.json` lists only the tasks. Their progress is in the run directories next to it, so the two cannot contradict
each other after a kill. A manifest may come from another account: `Sweep.read` checks every value, and accepts a
manifest that this account did not write only if it lists nothing but the tasks of the command that was typed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, TypeVar

import psutil

from rlplug_cli.file_checks import name_fault
from rlplug_core.config import (
    acquire_lock,
    as_type,
    inheritable_locks,
    open_lock,
    read_json,
    replace_file,
)
from rlplug_core.errors import BadFile, RlplugError, Untrusted, UsageError, warn
from rlplug_core.runs import RunDirectory, add_seal, genuine

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NAME = "sweep.json"
#: Options with a value that can be a file of further options.
FILES = ("--config", "--net", "--critic-net")
FORMAT = 1
Kind = Literal["seeds", "sweep", "tune", "evolve"]
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One run of a sweep: its name in the sweep's directory, and `words`, the options after ALGORITHM ENV.

    Raises:
        ValueError: the name is not that of a run directory, or the algorithm or the environment looks like an option.
    """

    name: str
    algorithm: str
    env: str
    seed: int
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if fault := name_fault(self.name):
            raise ValueError(f"task {self.name!r}: {fault}")
        if self.algorithm.startswith("-") or self.env.startswith("-"):
            raise ValueError(f"task {self.name!r}: its algorithm or its environment is an option")

    @property
    def stem(self) -> str:
        """Return the name without the seed: all seeds of one configuration share it."""
        return self.name.removesuffix(f"-s{self.seed}")

    @property
    def options(self) -> tuple[str, ...]:
        """Return everything that is typed for this task except the seed."""
        return (self.algorithm, self.env, *self.words)


@dataclass(frozen=True)
class Sweep:
    """The content of `sweep.json`.

    Attributes:
        kind: the command: `seeds` (`run --seeds`), `sweep`, `tune` or `evolve`.
        uid: the id of the sweep, a tag of its parent run in MLflow.
        created: when the sweep started, in seconds of Unix time.
        tasks: the runs.
        files: the SHA-256 of each file that the tasks name, by path.
    """

    kind: Kind
    uid: str
    created: float
    tasks: tuple[Task, ...]
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.uid.replace("-", "").isalnum():
            raise ValueError("its uid has other characters than letters, digits and hyphens")

    @classmethod
    def new(cls, kind: Kind) -> Sweep:
        """Return a sweep without tasks."""
        return cls(kind, uuid.uuid4().hex, time.time(), ())

    @classmethod
    def read(
        cls,
        directory: Path,
        typed: Collection[Task] = (),
    ) -> Sweep | None:
        """Return the sweep of a directory, or None if there is none.

        Args:
            typed: the tasks of the command that the user typed; they are trusted.

        Raises:
            RlplugError: the file cannot be read, has another version, or holds a value that is not allowed.
            Untrusted: it lists other tasks than `typed`, and this account did not write it.
        """
        path = directory / NAME
        if not os.path.lexists(path):
            return None
        sweep, is_ours = read_sealed(path, cls, FORMAT)
        if not is_ours and not set(sweep.tasks) <= set(typed):
            raise Untrusted(
                f"{path} lists runs that this account did not start; choose another --name, or move the directory away"
            )
        return sweep

    def write(self, directory: Path) -> None:
        """Save durably: a reader sees the old sweep or the new one."""
        write_sealed(directory / NAME, self, FORMAT)

    def add(self, directory: Path, tasks: Sequence[Task]) -> Sweep:
        """Return this sweep with `tasks` added, saved in `directory`; the lock must be held.

        Raises:
            UsageError: a task of the same name or of the same stem has other options, or a file that tasks name has
                changed.
        """
        by_name = {task.name: task for task in self.tasks}
        by_stem = {task.stem: task for task in reversed(self.tasks)}
        for task in tasks:
            existing = by_name.get(task.name) or by_stem.get(task.stem, task)
            same_name = existing.name == task.name
            if existing != task and (same_name or existing.options != task.options):
                raise UsageError(
                    f"{directory / existing.name} was started with other options; choose another --name"
                )
            by_name.setdefault(task.name, task)
        files = self.files | self._hashes(directory, tasks)
        sweep = Sweep(self.kind, self.uid, self.created, tuple(by_name.values()), files)
        if sweep != self or not (directory / NAME).exists():
            sweep.write(directory)
        return sweep

    def _hashes(
        self,
        directory: Path,
        tasks: Sequence[Task],
    ) -> dict[str, str]:
        """Return the hashes of the files that `tasks` name, after comparing them with those in the manifest."""
        pairs = {pair for task in tasks for pair in pairwise(task.words)}
        paths = sorted(word for flag, word in pairs if flag in FILES and Path(word).is_file())
        hashes = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
        for path, value in hashes.items():
            if self.files.get(path, value) != value:
                raise UsageError(
                    f"{path} has changed since {directory} was started; choose another --name"
                )
        return hashes


def open_sweep(directory: Path, kind: Kind, tasks: Sequence[Task]) -> Sweep:
    """Return the sweep of a directory with `tasks` added, created if there is none; the lock must be held.

    Raises:
        UsageError: another command filled the directory, or as `Sweep.add`. RlplugError, Untrusted: as `Sweep.read`.
    """
    sweep = Sweep.read(directory, tasks) or Sweep.new(kind)
    if sweep.kind != kind:
        raise UsageError(f"{directory} belongs to 'rlplug {sweep.kind}'; choose another --name")
    return sweep.add(directory, tasks)


def lock_directory(directory: Path) -> IO[bytes]:
    """Create a directory if needed and lock it until the returned file is closed here and in all child processes.

    So a killed sweep stays locked until the last of its runs has stopped, and this function waits for that. On Windows
    children hold no lock of their parent, so it waits for their own.

    Raises:
        UsageError: the directory is a run, another process works on it, or it cannot be written.
    """
    if RunDirectory(directory).config_path.exists():
        raise UsageError(f"{directory} is a run; choose another --name")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open_lock(directory / "lock")  # stays open until the sweep ends
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be written: {error.strerror}; choose another place with --out"
        ) from error
    try:
        acquire_lock(file.fileno())
    except BlockingIOError:
        _wait_for_lock(file, directory)
    if not inheritable_locks(file.fileno()):
        while any(RunDirectory(path).running() for path in directory.iterdir()):
            time.sleep(0.1)
    file.truncate(0)
    file.write(f"{os.getpid()} {psutil.Process().create_time()}".encode())
    file.flush()
    return file


def _wait_for_lock(file: IO[bytes], directory: Path) -> None:
    """Wait for the runs of a killed process; raise UsageError if the process that holds the lock is alive."""
    file.seek(0)
    pid, _, created = file.read(100).decode(errors="replace").partition(" ")
    try:
        alive = pid.isdecimal() and str(psutil.Process(int(pid)).create_time()) == created
    except psutil.NoSuchProcess:
        alive = False
    if alive:
        raise UsageError(
            f"process {pid} is working on {directory}; wait until it ends, or stop it first"
        )
    warn(f"waiting for the runs of a killed process to stop in {directory}")
    acquire_lock(file.fileno(), wait=True)


def write_sealed(path: Path, value: DataclassInstance, version: int) -> None:
    """Write the content of a file that `read_sealed` reads."""
    content = add_seal({"format": version, **asdict(value)})
    replace_file(path, json.dumps(content, indent=1).encode())


def read_sealed(path: Path, cls: type[T], version: int) -> tuple[T, bool]:
    """Return the content of a file with a seal, and whether this account wrote it.

    Args:
        path: a JSON file of a sweep or a population.
        cls: the class of its content.
        version: the number that its `format` must have.

    Raises:
        RlplugError: it cannot be read, has another format, or holds a value that is not allowed.
    """
    try:
        content = read_json(path)
        value = as_type(content, cls, path)
        if content.get("format") != version:
            raise BadFile(path, "another version of rlplug-cli wrote it")
    except BadFile as error:
        raise RlplugError(
            f"{path} cannot be read: {error.reason}; move the directory away to start again"
        ) from error
    return value, genuine(content)
