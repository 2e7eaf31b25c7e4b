"""Read untrusted files: only regular files, never through a link, never without a size limit.

A run directory may come from a stranger, an archive or a shared disk. A named pipe in it would block forever, a link
would lead out of it, and a sparse file would fill the memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from rlplug_core.errors import BadFile, plain

T = TypeVar("T")
#: Linux lists the open files and directories of a process here, by descriptor.
_DESCRIPTORS = Path("/proc/self/fd")
#: Flags of `os.open` for a directory, and not a link to one; Windows lacks them.
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
#: Flags of `os.open` that Windows lacks: do not wait for the writer of a pipe, do not let children inherit the file.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
#: The maximum bytes of a JSON or TOML file, of a file with the state of a component, and of a file that is streamed.
TEXT = 64 << 20
STATE = 1 << 30
LARGE = 1 << 40


def is_regular(path: Path) -> bool:
    """Return whether the path is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):  # a name with a null character
        return False


def is_directory(path: Path) -> bool:
    """Return whether the path is a directory, and not a link to one."""
    # A path of `hold_directory` is a link to an open directory.
    held = path.parent == _DESCRIPTORS
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=held).st_mode)
    except (OSError, ValueError):
        return False


def make_directory(path: Path) -> None:
    """Create a directory of a run if it is missing; its parent must exist.

    Raises:
        BadFile: a link or a file has this name, and another account may have planted it. OSError: it cannot be created.
    """
    if not os.path.lexists(path):
        path.mkdir(exist_ok=True)
    if not is_directory(path):
        raise BadFile(path, "it is not a directory of the run's own; delete it")


@contextmanager
def hold_directory(path: Path) -> Iterator[Path]:
    """Open a directory of a run, created if missing, and yield a path that leads to it even if a link replaces it.

    An account that can write into the run can replace the directory by a link at any time. Only Linux has paths to open
    directories; elsewhere the yielded path is `path` itself. It is valid in this process only.

    Raises:
        BadFile, OSError: as `make_directory`.
    """
    make_directory(path)
    if not _DIRECTORY or not _DESCRIPTORS.is_dir():
        yield path
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | _DIRECTORY | _FLAGS)
    except NotADirectoryError as error:
        raise BadFile(path, "it is not a directory of the run's own; delete it") from error
    try:
        yield _DESCRIPTORS / str(descriptor)
    finally:
        os.close(descriptor)


def open_regular(
    path: Path,
    mode: Literal["rb", "rb+", "ab", "ab+"] = "rb",
    limit: int = LARGE,
    follow: bool = False,
) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes; the modes that append create a missing file.

    Links are followed only with `follow`.

    Raises:
        BadFile: it is not a regular file, or larger. OSError: it is missing or cannot be opened.
    """
    flags = _FLAGS | (os.O_RDONLY if mode == "rb" else os.O_RDWR)
    if mode.startswith("a"):
        flags |= os.O_CREAT | os.O_APPEND
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    if not follow and not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise BadFile(path, "it is not a regular file; delete it")
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR) or path.is_dir():
            raise BadFile(path, "it is not a regular file; delete it") from error
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return os.fdopen(descriptor, mode)
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise BadFile(path, "it is not a regular file; delete it")
    raise BadFile(path, f"it has {status.st_size:,} bytes, and at most {limit:,} are allowed")


def open_lock(path: Path) -> IO[bytes]:
    """Open a file for a lock, created if missing; only its owner may open it, because a reader can lock a file, too.

    Raises:
        BadFile, OSError: as `open_regular`.
    """
    file = open_regular(path, "ab+")
    if hasattr(os, "fchmod"):
        with suppress(OSError):  # another account owns it, or its file system has no modes
            os.fchmod(file.fileno(), 0o600)
    return file


def content(path: Path, limit: int = TEXT, follow: bool = False) -> bytes:
    """Return all bytes of a regular file.

    Raises:
        BadFile: as `open_regular`. OSError: it cannot be read.
    """
    with open_regular(path, limit=limit, follow=follow) as file:
        # `read(limit)` would reserve that many bytes.
        return file.read(os.fstat(file.fileno()).st_size)


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file durably: a reader sees the old file or the new one, and an existing link is not followed.

    Args:
        content: the bytes of the file, or an iterable of its blocks.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # a killed process may have left it
    with os.fdopen(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666), "wb"
    ) as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a regular file durable.

    Raises:
        BadFile, OSError: as `open_regular`.
    """
    # Windows needs the right to write.
    mode: Literal["rb", "rb+"] = "rb+" if os.name == "nt" else "rb"
    with open_regular(path, mode) as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: after a power loss, files made or renamed in it are still there.

    Windows cannot do this on request; there the function does nothing.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Create a directory that only this account can open, and delete it after the block.

    A directory that a killed process left is replaced. The yielded path is that of `hold_directory`.

    Raises:
        BadFile: another process uses it. OSError: it cannot be created.
    """
    # Informational commands need neither `locks` nor the compression modules that `shutil` imports.
    import shutil

    from rlplug_core.config import locks

    if not is_directory(path):
        path.unlink(missing_ok=True)
    elif _is_in_use(path):
        reason = "another process writes into it; try again when that process has ended"
        raise BadFile(path.resolve(), reason)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(0o700)
    try:
        with hold_directory(path) as held:
            if held != path:
                with suppress(OSError):  # the file system has no locks
                    locks.acquire(int(held.name))
            yield held
    finally:
        shutil.rmtree(path, ignore_errors=True)  # must not hide an error of the block


def _is_in_use(directory: Path) -> bool:
    """Return whether a process is in the block of `temporary_directory`; always False except on Linux."""
    from rlplug_core.config import locks

    with hold_directory(directory) as held:
        return held != directory and locks.is_locked(int(held.name))


@contextmanager
def keep_directory(inside: str = ".") -> Iterator[None]:
    """Restore the working directory after the block: foreign code may change it, and paths are relative to it.

    Args:
        inside: the working directory during the block.
    """
    directory = os.getcwd()
    os.chdir(inside)
    try:
        yield
    finally:
        if os.path.isdir(directory):
            os.chdir(directory)


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, or has half a surrogate pair, which cannot be written to a file or a terminal.
        RecursionError: it nests too deep.
    """
    value = json.loads(data)
    if b"\\u" in data or b"\xed" in data:  # only these bytes can make a surrogate
        # This accepts the surrogates in names of files that are not UTF-8.
        json.dumps(value, ensure_ascii=False).encode(errors="surrogateescape")
    return value


def from_json(path: Path, limit: int = TEXT, follow: bool = False) -> Any:
    """Return the value in a JSON file.

    Raises:
        BadFile: it cannot be read, is not JSON, or nests too deep.
    """
    try:
        return parse_json(content(path, limit, follow))
    except OSError as error:
        raise BadFile(path, f"{error.strerror}") from error
    except RecursionError as error:
        raise BadFile(path, "it nests too deep") from error
    except ValueError as error:
        raise BadFile(path, f"it is not JSON ({plain(str(error), 100)})") from error


def as_type(value: object, kind: type[T], path: Path) -> T:
    """Return a value from a file as a dataclass or a struct.

    Raises:
        BadFile: a part is missing or has a wrong type.
    """
    import msgspec  # takes 15 ms, and completion does not need it

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadFile(path, plain(str(error))) from error
    except RecursionError as error:
        raise BadFile(path, "it nests too deep") from error


def from_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file that the user named; it may be a link or a pipe.

    Raises:
        OSError: it cannot be read. ValueError: it is not TOML, nests too deep, or is too large.
    """
    import tomllib  # takes 5 ms, and completion does not need it

    with open(path, "rb") as file:
        text = file.read(TEXT + 1)
    if len(text) > TEXT:
        raise ValueError(f"it has more than {TEXT:,} bytes")
    try:
        tables = tomllib.loads(text.decode())
        json.dumps(tables)  # fails if it nests too deep
    except TypeError:
        raise ValueError("it contains a date or a time, which no option accepts") from None
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except ValueError as error:
        raise ValueError(plain(str(error))) from error
    return tables
