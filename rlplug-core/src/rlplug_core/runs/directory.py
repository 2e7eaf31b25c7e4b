"""A run directory: all files of one run, and the lock that lets one process at a time write it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rlplug_core.config.files import (
    content,
    is_regular,
    open_lock,
    open_regular,
    replace,
    sync_directory,
)
from rlplug_core.config.locks import acquire, is_locked, release
from rlplug_core.errors import BadFile, RlplugError, UsageError, plain
from rlplug_core.runs.files import shell_word, writing
from rlplug_core.runs.journal import Record, read
from rlplug_core.runs.schemas import RunConfig, read_config

#: The first file of a run directory. Locking a run locks this file and the directory.
LOCK = "lock"
#: Seconds to wait for a lock: a command that lists runs holds one for a moment.
PATIENCE = 0.5
#: Whether a directory can be locked; Windows cannot open it.
CAN_LOCK_DIRECTORY = hasattr(os, "O_DIRECTORY")
#: The file that marks the directory of a sweep.
SWEEP = "sweep.json"

#: The kinds of records that change the status of a run, and that status; "" if the record contains it.
ENDINGS = {"start": "killed", "exchange": "interrupted", "end": ""}
#: Options about the machines of a run, which do not change its results.
PLACES = frozenset({"on", "cpus_per_actor", "gpus"})


class RunDirectory:
    """Paths of a run, its configuration, and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.journal_path = path / "journal.jsonl"
        self.checkpoints_path = path / "checkpoints"
        #: The descriptors of the locked file and directory; empty without the lock.
        self._locked: list[int] = []
        #: Whether some hooks must be called again: the process was killed before their end, or one of them
        #: failed. Until they are called, the file `lock` contains the id of that process.
        self.hooks_pending = False
        _DIRECTORIES.add(self)

    @classmethod
    def create(cls, out: Path, name: str | None, stem: str) -> RunDirectory:
        """Return a new directory `out/name`, locked; without a name, one from `stem` and the time.

        A directory left by a process that was killed before it wrote its configuration is reused.

        Raises:
            UsageError: its name cannot be printed or is a path, or it exists already or cannot be written.
        """
        if name is not None:
            _check_name(name)
        path = out / (
            name or f"{re.sub(r'[^A-Za-z0-9._-]+', '-', stem)}-{time.strftime('%Y%m%d-%H%M%S')}"
        )
        try:
            if not out.is_dir():
                out.mkdir(parents=True, exist_ok=True)
                sync_directory(out.parent)
            path = _make(path, unique=name is None)
        except OSError as error:
            if not isinstance(error, FileExistsError) or not out.is_dir():
                reason = (
                    error.strerror
                    if out.is_dir() or not out.exists()
                    else f"{out} is not a directory"
                )
                raise UsageError(
                    f"run directory {path} cannot be written: {reason}; choose another place with --out"
                ) from error
            if not _is_abandoned(path):
                raise UsageError(_exists_error(path)) from error
        directory = cls(path.absolute())
        directory.lock()
        return directory

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """Return an existing run directory.

        Raises:
            UsageError: `path` does not have a run.
        """
        directory = cls(Path(path).absolute())
        if not (is_regular(directory.config_path) or directory.is_export):
            raise UsageError(
                f"no run at {path}: it has no config.json; 'rlplug runs' lists the runs here"
            )
        return directory

    @property
    def is_export(self) -> bool:
        """Return whether it has an exported policy instead of checkpoints."""
        return (self.path / "policy.json").is_file()

    @property
    def config(self) -> RunConfig:
        """Return the content of `config.json`.

        Raises:
            BadFile: it cannot be used.
            UsageError: it is an exported policy.
        """
        self.require_run()
        return read_config(self.config_path)

    def require_run(self) -> None:
        """Raise UsageError if it is an exported policy, which has no configuration and no journal."""
        if self.is_export and not os.path.lexists(self.config_path):
            raise UsageError(
                f"{self.path} is an exported policy, which has no record of its training; name the run instead"
            )

    def write_config(self, config: Mapping[str, object]) -> None:
        with writing(self.config_path):
            replace(self.config_path, json.dumps(config, indent=1).encode())

    def lock(self) -> None:
        """Become the only process that writes this run; any exit of the process releases the lock.

        The lock covers the file `lock` and the directory itself, which remains locked if the file is deleted.

        Raises:
            UsageError: another process holds it, or the directory cannot be written.
        """
        if self.held:
            return
        try:
            self._lock_path(self.path / LOCK)
            if CAN_LOCK_DIRECTORY:
                self._lock_path(self.path)
        except BlockingIOError as error:
            holder = self._holder()
            self.unlock()
            raise UsageError(
                f"run {self.path} is being written by process {holder}; wait for it or stop it first"
            ) from error
        except OSError as error:
            self.unlock()
            raise UsageError(
                f"run {self.path} cannot be locked: {error.strerror}; check that it is yours"
            ) from error
        self.hooks_pending = os.fstat(self._locked[0]).st_size > 0
        with writing(self.path / LOCK):
            os.ftruncate(self._locked[0], 0)
            os.write(self._locked[0], str(os.getpid()).encode())  # appends

    def unlock(self) -> None:
        for file in self._locked:
            release(file)
        self._locked = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock during the block. After it, the file `lock` is empty unless hooks are pending."""
        self.lock()
        try:
            yield
        finally:
            if self.held and not self.hooks_pending:
                os.ftruncate(self._locked[0], 0)
            self.unlock()

    @property
    def held(self) -> bool:
        """Return whether this process holds the lock; a process that it forks does not."""
        return bool(self._locked)

    def running(self) -> bool:
        """Return whether a process holds the lock."""
        return _is_locked(self.path / LOCK) or (
            CAN_LOCK_DIRECTORY and _is_locked(self.path, directory=True)
        )

    def _lock_path(self, path: Path) -> None:
        directory = path == self.path
        file = _descriptor(path, directory, open_lock)
        self._locked.append(file)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                acquire(file)
                return
            except BlockingIOError:
                if is_foreign_lock(file, directory):
                    return
                if time.monotonic() > deadline:
                    raise
            except OSError:
                if directory:  # a network file system may lock only files
                    return
                raise
            time.sleep(0.01)

    def _holder(self) -> str:
        try:
            return plain(content(self.path / LOCK).decode(errors="replace"), 40) or "unknown"
        except (OSError, BadFile):
            return "unknown"

    def status(self) -> str:
        """Return `running`, or the status after the last process: `finished`, `failed`, `interrupted` or `killed`."""
        return "running" if self.running() else self.last_status()

    def has_pending_hooks(self) -> bool:
        """Return whether a process is writing this run, or ended before all hooks had been called."""
        lock = self.path / LOCK
        return is_regular(lock) and lock.lstat().st_size > 0

    def last_status(self) -> str:
        """Return the status of the run after its last process; see `ending`."""
        return ending(read(self.journal_path, kinds=ENDINGS))


def ending(journal: Iterable[Record]) -> str:
    """Return the status after the last process: `finished`, `failed`, `interrupted`; `killed` without an end record.

    After an exchange with another member of its population, a run counts as interrupted, because it can continue.
    """
    status = "killed"
    for record in journal:
        if record.kind in ENDINGS:
            status = ENDINGS[record.kind] or str(record.data["status"])
    return status


def group_of(algorithm: str, env: str, options: Mapping[str, object]) -> str:
    """Return the hash of a configuration without its seed and its machines: runs with equal hashes form a group."""
    compared = {name: value for name, value in options.items() if name not in ("seed", *PLACES)}
    text = json.dumps([algorithm, env, compared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_locked(path: Path, directory: bool = False) -> bool:
    try:
        file = _descriptor(path, directory)
    except OSError:
        return False
    try:
        return is_locked(file) and not is_foreign_lock(file, directory)
    finally:
        os.close(file)


def is_foreign_lock(file: int, directory: bool) -> bool:
    """Return whether only other accounts hold the lock of a file: an account can lock a run that it can only read.

    Returns False on Windows, and if the system does not know the holder. A child process can still hold the lock after
    the process that took it has ended, and then its account is unknown. An unknown holder of the file `lock` may be a
    child of the run's own process, so it counts as this account. An unknown holder of the directory does not count,
    because such a child also holds the file `lock`.
    """
    if not hasattr(os, "geteuid"):
        return False
    inode = f":{os.fstat(file).st_ino}"
    owners: set[int | None] = set()
    try:
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].endswith(inode):
                owners.add(_owner(words[4]))
    except (OSError, ValueError, IndexError):
        return False
    accounts = {0, os.geteuid(), *(() if directory else (None,))}
    return bool(owners) and owners.isdisjoint(accounts)


def _owner(process: str) -> int | None:
    """Return the account of a process, or None if it is gone."""
    try:
        return os.stat(f"/proc/{process}").st_uid
    except OSError:
        return None


def _descriptor(
    path: Path,
    directory: bool,
    opener: Callable[[Path], IO[bytes]] = open_regular,
) -> int:
    """Return a descriptor of a directory, or of a regular file."""
    if directory:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with opener(path) as file:
        return os.dup(file.fileno())


def _check_name(name: str) -> None:
    """Raise UsageError if a name cannot be printed, or is a path."""
    if not (isinstance(name, str) and name and name.isprintable()):
        raise UsageError(
            f"--name {plain(repr(name))}: a name must consist of printable characters; choose another"
        )
    if Path(name).name != name or name == "..":
        raise UsageError(
            f"--name {name}: this is a path; give its directory with --out, and only its last part with --name"
        )


def _exists_error(path: Path) -> str:
    """Return the error for a directory that exists already, with the remedy."""
    remedy = "; it holds no run"
    if (path / SWEEP).exists():
        remedy = ", or delete the sweep in it"
    elif (path / "config.json").exists():
        remedy = f", or 'rlplug resume {shell_word(path)}' to continue it"
    return f"run directory {path} exists already; choose another --name{remedy}"


def _is_abandoned(path: Path) -> bool:
    """Return whether a process made this directory and was killed before it wrote the configuration."""
    if path.is_symlink() or not path.is_dir():
        return False
    has_run = any(os.path.lexists(path / name) for name in ("config.json", SWEEP))
    return not any(path.iterdir()) or (is_regular(path / LOCK) and not has_run)


def _release_in_child() -> None:
    """Release the lock in a child that an environment forks, because the child may outlive the run's process."""
    for directory in _DIRECTORIES:
        directory.unlock()


_DIRECTORIES: weakref.WeakSet[RunDirectory] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _make(path: Path, unique: bool) -> Path:
    """Create a directory and return its path; with `unique`, add a number if the name exists already."""
    for number in range(1, 1000):
        attempt = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            attempt.mkdir()
        except FileExistsError:
            if not unique:
                raise
            continue
        sync_directory(attempt.parent)
        return attempt
    raise RlplugError(f"a thousand runs named {path.name} exist; choose a --name")
