"""A run directory: where everything about one run is, and the lock that lets one process at a time write it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.runs.journal import read


class RunDirectory:
    """Paths of a run, its configuration, and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.journal_path = path / "journal.jsonl"
        self.checkpoints_path = path / "checkpoints"
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls, out: Path, name: str | None, stem: str) -> RunDirectory:
        """A new directory `out/name`; without a name, one from `stem` and the time.

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
            raise UsageError(
                f"run directory {path} exists already; "
                f"choose another --name, or `rlplug resume {path}` to go on with it"
            ) from error
        return cls(path.absolute())

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

    def write_config(self, config: Mapping[str, object]) -> None:
        temporary = self.config_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(config, indent=1), encoding="utf-8")
        temporary.rename(self.config_path)

    def lock(self) -> None:
        """Become the one process that writes this run; released at exit, however the process ends.

        Raises:
            RlplugError: another process holds it.
        """
        file = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115  # held until released
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with file:
                file.seek(0)
                holder = file.read() or "unknown"
            raise UsageError(
                f"run {self.path} is being written by process {holder}; wait for it or stop it first"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock = file

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def running(self) -> bool:
        """Return whether a process holds the lock."""
        path = self.path / "lock"
        if not path.exists():
            return False
        with open(path, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def status(self) -> str:
        """`running`, or how the last process left it: `finished`, `failed`, `interrupted`, `killed` without a word."""
        if self.running():
            return "running"
        status = "killed"
        if self.journal_path.exists():
            for record in read(self.journal_path, kinds=("start", "end")):
                status = record.data["status"] if record.kind == "end" else "killed"
        return str(status)


def group_of(algorithm: str, env: str, options: Mapping[str, object]) -> str:
    """The hash of a configuration without its seed: runs of one group differ in the seed alone."""
    rest = {name: value for name, value in options.items() if name != "seed"}
    text = json.dumps([algorithm, env, rest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
