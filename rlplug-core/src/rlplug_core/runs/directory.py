"""A run directory: where everything about one run is, and the lock that lets one process at a time write it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.runs.files import writing
from rlplug_core.runs.journal import read

#: The first file of a run directory, and one of the two marks of its lock.
LOCK = "lock"


class RunDirectory:
    """Paths of a run, its configuration, and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.journal_path = path / "journal.jsonl"
        self.checkpoints_path = path / "checkpoints"
        self._marks: list[int] = []
        _DIRECTORIES.add(self)

    @classmethod
    def create(cls, out: Path, name: str | None, stem: str) -> RunDirectory:
        """A new directory `out/name`, locked; without a name, one from `stem` and the time.

        What a process left that was killed before it wrote down its configuration is taken over.

        Raises:
            UsageError: it exists already or cannot be written.
        """
        path = out / (name or f"{re.sub(r'[^A-Za-z0-9._-]+', '-', stem)}-{time.strftime('%Y%m%d-%H%M%S')}")
        try:
            out.mkdir(parents=True, exist_ok=True)
            path = _make(path, unique=name is None)
        except OSError as error:
            if not isinstance(error, FileExistsError) or not out.is_dir():
                reason = error.strerror if out.is_dir() or not out.exists() else f"{out} is no directory"
                raise UsageError(
                    f"run directory {path} cannot be written: {reason}; choose another place with --out"
                ) from error
            if not _abandoned(path):
                begun = (path / "config.json").exists()
                way = f"`rlplug resume {path}` to go on with it" if begun else "delete it, as it holds no run"
                raise UsageError(f"run directory {path} exists already; choose another --name, or {way}") from error
        directory = cls(path.absolute())
        directory.lock()
        return directory

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """An existing run directory.

        Raises:
            UsageError: there is no run at `path`.
        """
        directory = cls(Path(path).absolute())
        if not directory.config_path.is_file():
            raise UsageError(f"no run at {path}: it has no config.json; `rlplug runs` lists the runs here")
        return directory

    @property
    def config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.config_path.read_text(encoding="utf-8"))
        return loaded

    def write_config(self, config: Mapping[str, Any]) -> None:
        temporary = self.config_path.with_suffix(".tmp")
        with writing(self.config_path):
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(json.dumps(config, indent=1))
                file.flush()
                os.fsync(file.fileno())  # or a loss of power leaves an empty file under its name
            temporary.rename(self.config_path)

    def lock(self) -> None:
        """Become the one process that writes this run; released at exit, however the process ends.

        Two marks bear the lock: the file `lock`, and the directory itself, which stays where someone deletes the file.

        Raises:
            UsageError: another process holds it, or the directory cannot be written.
        """
        if self.held:
            return
        try:
            self._mark(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            self._mark(self.path, os.O_RDONLY)
        except BlockingIOError as error:
            holder = self._holder()
            self.unlock()
            raise UsageError(
                f"run {self.path} is being written by process {holder}; wait for it or stop it first"
            ) from error
        except OSError as error:
            self.unlock()
            raise UsageError(f"run {self.path} cannot be locked: {error.strerror}; see whether it is yours") from error
        with writing(self.path / LOCK):
            os.ftruncate(self._marks[0], 0)
            os.pwrite(self._marks[0], str(os.getpid()).encode(), 0)

    def unlock(self) -> None:
        for mark in self._marks:
            os.close(mark)
        self._marks = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The lock for the block, as in `lock`."""
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    @property
    def held(self) -> bool:
        """Return whether this process holds the lock; a process forked from one that does, does not."""
        return bool(self._marks)

    def running(self) -> bool:
        """Return whether a process holds the lock."""
        return any(_locked(path) for path in (self.path / LOCK, self.path))

    def _mark(self, path: Path, flags: int) -> None:
        file = os.open(path, flags | os.O_CLOEXEC, 0o666)
        self._marks.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            if path != self.path:  # a network's file system may lock files alone
                raise

    def _holder(self) -> str:
        try:
            return (self.path / LOCK).read_text(encoding="utf-8") or "unknown"
        except (OSError, ValueError):
            return "unknown"

    def status(self) -> str:
        """`running`, or how the last process left it: `finished`, `failed`, `interrupted`, `killed` without a word."""
        return "running" if self.running() else self.left()

    def left(self) -> str:
        """Return how the last process left the run, or `killed` where one is at it."""
        status = "killed"
        if self.journal_path.exists():
            for record in read(self.journal_path, kinds=("start", "end")):
                status = record.data["status"] if record.kind == "end" else "killed"
        return str(status)


def group_of(algorithm: str, env: str, options: Mapping[str, Any]) -> str:
    """The hash of a configuration without its seed: runs of one group differ in the seed alone."""
    rest = {name: value for name, value in options.items() if name != "seed"}
    text = json.dumps([algorithm, env, rest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(file)
    return False


def _abandoned(path: Path) -> bool:
    """Return whether a process made this directory and was killed before it wrote down what the run is."""
    return (path / LOCK).is_file() and not (path / "config.json").exists()


def _let_go() -> None:
    """A child that an environment forks must not keep the lock of a run whose process has died."""
    for directory in _DIRECTORIES:
        directory.unlock()


_DIRECTORIES: weakref.WeakSet[RunDirectory] = weakref.WeakSet()
os.register_at_fork(after_in_child=_let_go)


def _make(path: Path, unique: bool) -> Path:
    for number in range(1, 1000):
        attempt = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            attempt.mkdir()
        except FileExistsError:
            if not unique:
                raise
            continue
        return attempt
    raise RlplugError(f"a thousand runs named {path.name} exist; choose a --name")
