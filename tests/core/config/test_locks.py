"""Locks on open files by `fcntl`, and by `msvcrt` as on Windows."""

from __future__ import annotations

import fcntl
import os
import sys
import types
from pathlib import Path

import pytest

from rlplug_core.config import locks
from rlplug_core.config.files import open_lock


def locking(file: int, mode: int, count: int) -> None:
    fcntl.flock(file, mode)


@pytest.mark.parametrize("windows", [False, True])
def test_lock_has_one_owner_until_it_is_released(
    windows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if windows:
        modes = {"LK_NBLCK": fcntl.LOCK_EX | fcntl.LOCK_NB, "LK_UNLCK": fcntl.LOCK_UN}
        monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, **modes))  # type: ignore[arg-type]
        monkeypatch.setattr(locks, "fcntl", None)
    path = tmp_path / "lock"
    with open_lock(path) as first, open_lock(path) as second, open_lock(path) as third:
        first.write(b"note")
        first.flush()
        locks.acquire(first.fileno())
        assert locks.is_locked(second.fileno())
        with pytest.raises(BlockingIOError):
            locks.acquire(second.fileno())
        assert first.tell() == 4  # the lock does not move the position
        locks.release(os.dup(first.fileno()))
        first.close()
        assert not locks.is_locked(second.fileno())
        locks.acquire(second.fileno(), wait=True)
        assert locks.is_locked(third.fileno())
        assert locks.inheritable(second.fileno()) == (() if windows else (second.fileno(),))
