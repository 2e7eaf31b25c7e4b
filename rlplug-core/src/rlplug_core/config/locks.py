"""Exclusive locks on open files, with `fcntl` or, on Windows, with `msvcrt`.

A lock ends with the process that holds it, however that process ends. With `fcntl` it also stays as long as a child
process has the file open; on Windows children never hold it.
"""

from __future__ import annotations

import os
import time
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

#: Seconds between two attempts, on a system that cannot wait for a lock.
TICK = 0.1
#: The byte that is locked on Windows. Other processes cannot read a locked byte, so it is after the end of any content.
BYTE = 0x7FFF0000


def acquire(file: int, wait: bool = False) -> None:
    """Lock an open file for this process.

    Args:
        file: its descriptor.
        wait: whether to wait for another process that holds the lock.

    Raises:
        BlockingIOError: another process holds it, and `wait` is False. OSError: the file system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    while not _set_byte(file, "LK_NBLCK"):
        if not wait:
            raise BlockingIOError("another process holds the lock")
        time.sleep(TICK)


def is_locked(file: int) -> bool:
    """Return whether another process holds the lock of an open file."""
    if fcntl is None:
        return not (_set_byte(file, "LK_NBLCK") and _set_byte(file, "LK_UNLCK"))
    try:
        # Shared, so that two processes can check at once.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def release(file: int) -> None:
    """Close the descriptor and end its lock; in a forked child, the parent keeps the lock."""
    if fcntl is None:
        _set_byte(file, "LK_UNLCK")
    os.close(file)


def inheritable(file: int) -> tuple[int, ...]:
    """Return the `pass_fds` of `subprocess.Popen` that let a child process hold the lock, too."""
    return () if fcntl is None else (file,)


def _set_byte(file: int, mode: str) -> bool:
    """Lock or unlock one byte; return whether the system did."""
    import msvcrt

    position = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(file, getattr(msvcrt, mode), 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    finally:
        os.lseek(file, position, os.SEEK_SET)
    return True
