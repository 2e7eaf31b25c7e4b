"""The directory of a sweep: which tasks it consists of, and the lock that lets one process at a time carry them out.

`sweep.json` says only what is to be done. How far it is, the run directories beside it tell, so that nothing can
contradict them after a kill.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO

import psutil

from rlplug_core.config.files import from_json, opened, replace
from rlplug_core.config.import_string import is_target
from rlplug_core.errors import BadFile, RlplugError, UsageError, plain, warn
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.trust import SEAL, genuine, sealed

NAME = "sweep.json"
#: Options whose value names a file of further options.
FILES = ("--config", "--net")
FORMAT = 1


@dataclass(frozen=True)
class Task:
    """One run to be done: its name in the sweep's directory, and `words`, the options behind ALGORITHM ENV."""

    name: str
    algorithm: str
    env: str
    seed: int
    words: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The name without the seed: that of all seeds of one configuration."""
        return self.name.removesuffix(f"-s{self.seed}")


@dataclass(frozen=True)
class Sweep:
    """The content of `sweep.json`.

    Attributes:
        kind: `seeds`, `sweep` or `tune`.
        uid, created: what MLflow knows it by, and when it was made, in seconds of Unix time.
        tasks: the runs.
        files: by path, the SHA-256 of each file that their words name.
    """

    kind: str
    uid: str
    created: float
    tasks: tuple[Task, ...]
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Sweep | None:
        """The sweep of a directory; None where there is none.

        Raises:
            RlplugError: the file cannot be read, or is of another version.
        """
        path = directory / NAME
        if not path.exists():
            return None
        try:
            found = from_json(path)
            written_here = genuine(found)
            found.pop(SEAL, None)
            if found.pop("format") != FORMAT:
                raise ValueError("it is of another version of rlplug-cli")
            tasks = tuple(
                Task(**{**task, "words": tuple(task["words"])}) for task in found.pop("tasks")
            )
            read = cls(**found, tasks=tasks)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, BadFile) as error:
            said = error.reason if isinstance(error, BadFile) else plain(str(error))
            raise RlplugError(
                f"{path} cannot be read: {said}; move the directory away to begin anew"
            ) from error
        if not written_here and any(is_target(word) for task in tasks for word in _words(task)):
            raise RlplugError(
                f"{path} names code, and this account did not write it; move the directory away"
            )
        return read

    def write(self, directory: Path) -> None:
        """Save durably: a reader sees the old sweep or the new one."""
        replace(
            directory / NAME,
            json.dumps(sealed({"format": FORMAT, **asdict(self)}), indent=1).encode(),
        )


def _words(task: Task) -> tuple[str, ...]:
    return (task.algorithm, task.env, *task.words)


def kept(directory: Path, kind: str, tasks: Sequence[Task]) -> Sweep:
    """The sweep of a directory with `tasks` added to those it has; the lock must be held.

    Raises:
        UsageError: a task of the same name, or another seed of it, does something else, or a file has changed that
            tasks name.
    """
    before = Sweep.read(directory) or Sweep(kind, uuid.uuid4().hex, time.time(), ())
    known = {task.name: task for task in before.tasks}
    stems = {task.stem: task for task in reversed(before.tasks)}
    for task in tasks:
        there = known.get(task.name) or stems.get(task.stem, task)
        if there != task and (there.name == task.name or _words(there) != _words(task)):
            raise UsageError(
                f"{directory / there.name} was made with other options; choose another --name"
            )
        known.setdefault(task.name, task)
    if before.kind != kind:
        raise UsageError(
            f"{directory} holds what 'rlplug {before.kind}' made; choose another --name"
        )
    files = before.files | _files(directory, before, tasks)
    found = Sweep(before.kind, before.uid, before.created, tuple(known.values()), files)
    if found != before or not (directory / NAME).exists():
        found.write(directory)
    return found


def _files(directory: Path, before: Sweep, tasks: Sequence[Task]) -> dict[str, str]:
    """The hashes of the files that tasks name; they are those that the sweep has known."""
    pairs = {pair for task in tasks for pair in pairwise(task.words)}
    paths = sorted(word for flag, word in pairs if flag in FILES and Path(word).is_file())
    found = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    for path, content in found.items():
        if before.files.get(path, content) != content:
            raise UsageError(
                f"{path} has changed since {directory} was begun; choose another --name"
            )
    return found


def locked(directory: Path) -> IO[bytes]:
    """The lock of a directory, which is made; held until the file is closed, here and in every process that got it.

    So a sweep that was killed is locked until the last of its runs has stopped, and this waits for that.

    Raises:
        UsageError: it is a run's, another process is at work there, or it cannot be written.
    """
    if RunDirectory(directory).config_path.exists():
        raise UsageError(f"{directory} is a run; choose another --name")
    path = directory / "lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = opened(path, "ab+")  # held until the sweep ends
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be written: {error.strerror}; choose another place with --out"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _wait(file, directory)
    file.truncate(0)
    file.write(f"{os.getpid()} {psutil.Process().create_time()}".encode())
    file.flush()
    return file


def _wait(file: IO[bytes], directory: Path) -> None:
    file.seek(0)
    pid, _, created = file.read(100).decode(errors="replace").partition(" ")
    if pid.isdecimal() and _alive(int(pid), created):
        raise UsageError(f"{directory} is at work in process {pid}; wait for it or stop it first")
    warn(f"waiting for the runs of a process that was killed to stop in {directory}")
    fcntl.flock(file, fcntl.LOCK_EX)


def _alive(pid: int, created: str) -> bool:
    """Return whether that process is still the one that wrote its number."""
    try:
        return str(psutil.Process(pid).create_time()) == created
    except psutil.NoSuchProcess:
        return False
