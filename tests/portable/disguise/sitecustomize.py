"""Simulates Windows for rlplug: with this folder in PYTHONPATH, every Python process imports this module at its start.

Only modules of rlplug see the simulation; the standard library and other packages need Linux. It hides modules and
names that Windows lacks, and raises the errors of Windows for opening a folder, renaming onto an existing file,
renaming or deleting an open file, and names with a colon. So it tests rlplug's own code, not torch, MuJoCo and other
packages.
"""

from __future__ import annotations

import builtins
import errno
import os
import pathlib
import shutil
import sys
import types
from collections.abc import Callable
from typing import Any

#: Packages that see the simulation.
OURS = ("rlplug_", "rlplug.")
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "multiprocessing.forkserver"}
#: Names that modules of the standard library lack on Windows.
NAMES = {
    "os": "fork forkpty register_at_fork killpg getpgid setsid getuid geteuid getgid nice pread pwrite fchmod fchown"
    " chown mkfifo posix_fallocate sysconf statvfs uname sched_getaffinity set_blocking wait waitid WNOHANG getloadavg"
    " O_NONBLOCK O_CLOEXEC O_NOFOLLOW O_DIRECTORY",
    "signal": "SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGPIPE SIGALRM SIGCHLD SIGQUIT SIGSTOP SIGCONT pthread_sigmask"
    " pthread_kill SIG_BLOCK SIG_UNBLOCK SIG_SETMASK setitimer alarm pause sigwait",
    "multiprocessing": "forkserver",
    "multiprocessing.context": "ForkContext ForkServerContext ForkProcess ForkServerProcess",
    "time": "tzset",
    "mmap": "",
    "sys": "",
}
FORBIDDEN = set('<>:"|?*')


class WindowsModule(types.ModuleType):
    """A module without some names, and with others replaced."""

    def __init__(self, real: types.ModuleType, hidden: set[str], others: dict[str, Any]) -> None:
        object.__setattr__(self, "_about", (real, hidden, others))

    def __getattribute__(self, name: str) -> Any:
        real, hidden, others = object.__getattribute__(self, "_about")
        if name in ("__class__", "__name__"):
            return types.ModuleType if name == "__class__" else f"windows.{real.__name__}"
        if name in hidden:
            raise AttributeError(f"module {real.__name__!r} has no attribute {name!r} on Windows")
        return others[name] if name in others else getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_about")[0], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_about")[0], name)


def is_ours(depth: int = 2) -> bool:
    """Return whether a module of rlplug called the caller of this function."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith(OURS)


def check_name(path: Any) -> None:
    """Raise OSError for a name that Windows does not allow."""
    if isinstance(path, int):
        return
    parts = pathlib.PurePath(os.fsdecode(path)).parts
    if any(FORBIDDEN & set(part) for part in parts[1:] or parts):
        raise OSError(errno.EINVAL, "Windows: the filename syntax is incorrect", os.fspath(path))


def open_paths() -> list[str]:
    """Return the files that this process has open or mapped."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found += [line.split(maxsplit=5)[5].rstrip() for line in maps if line.count("/")]
    return found


def check_closed(path: Any) -> None:
    """Raise PermissionError if a file, or a file in a folder, is open: Windows neither renames nor deletes it."""
    name = os.path.realpath(os.fspath(path))
    within = [opened for opened in open_paths() if opened == name or opened.startswith(f"{name}/")]
    if within:
        raise PermissionError(errno.EACCES, f"Windows: {within[0]} is open", os.fspath(path))


def open_file(path: Any, flags: int, *rest: Any, **options: Any) -> int:
    check_name(path)
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Windows: a folder cannot be opened", path)
    return _os_open(path, flags, *rest, **options)


def fsync(descriptor: int) -> None:
    import fcntl

    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Windows: a file that is open for reading only cannot be synced")
    os.fsync(descriptor)


def rename(source: Any, target: Any, **options: Any) -> None:
    check_name(target)
    check_closed(source)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "Windows: the target exists", os.fspath(target))
    _os_rename(source, target, **options)


def replace(source: Any, target: Any, **options: Any) -> None:
    check_name(target)
    check_closed(source)
    check_closed(target)
    _os_replace(source, target, **options)


def unlink(path: Any, **options: Any) -> None:
    check_closed(path)
    _os_unlink(path, **options)


def guard(cls: type, name: str, checked: Callable[..., Any], returns: bool = False) -> None:
    """Let a method of `Path` call `checked` when rlplug calls it."""
    plain = getattr(cls, name)

    def method(self: Any, *words: Any, **options: Any) -> Any:
        if not is_ours():
            return plain(self, *words, **options)
        missing = options.pop("missing_ok", False)
        if missing and not os.path.lexists(self):
            return None
        checked(self, *words, **options)
        return type(self)(words[0]) if returns else None

    setattr(cls, name, method)


_open, _os_open = builtins.open, os.open
_os_rename = os.rename
_os_replace = os.replace
_os_unlink = os.unlink
_rmtree = shutil.rmtree
_import = builtins.__import__
_path_open = pathlib.Path.open
_mkdir = pathlib.Path.mkdir


def open_any(path: Any, *words: Any, **options: Any) -> Any:
    if is_ours():
        check_name(path)
    return _open(path, *words, **options)


def path_open(self: pathlib.Path, *words: Any, **options: Any) -> Any:
    if is_ours():
        check_name(self)
    return _path_open(self, *words, **options)


def mkdir(self: pathlib.Path, *words: Any, **options: Any) -> None:
    if is_ours():
        check_name(self)
    _mkdir(self, *words, **options)


def rmtree(path: Any, ignore_errors: bool = False, **options: Any) -> None:
    if is_ours():
        try:
            check_closed(path)
        except PermissionError:
            if ignore_errors:
                return
            raise
    _rmtree(path, ignore_errors, **options)


def get_context(method: str | None = None) -> Any:
    import multiprocessing

    if method not in (None, "spawn"):
        raise ValueError(f"cannot find context for {method!r} on Windows")
    return multiprocessing.get_context("spawn")


def set_wakeup_fd(descriptor: int, **options: Any) -> int:
    """Accept a pipe that blocks, as Windows does."""
    import signal

    if descriptor >= 0:
        os.set_blocking(descriptor, False)
    return signal.set_wakeup_fd(descriptor, **options)


def open_named_memory(descriptor: int, size: int, tagname: str = "", **options: Any) -> Any:
    """Return memory with a name that other processes can open, like on Windows; its file is not deleted."""
    import mmap

    if descriptor != -1:
        return mmap.mmap(descriptor, size, **options)
    with open(f"/dev/shm/{tagname}", "a+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


OTHERS: dict[str, dict[str, Any]] = {
    "os": {
        "name": "nt",
        "open": open_file,
        "rename": rename,
        "replace": replace,
        "unlink": unlink,
        "remove": unlink,
        "fsync": fsync,
    },
    "multiprocessing": {"get_context": get_context},
    "mmap": {"mmap": open_named_memory},
    "signal": {"set_wakeup_fd": set_wakeup_fd},
    "sys": {"platform": "win32"},
}


def fake_msvcrt() -> types.ModuleType:
    """Return `msvcrt` with `locking`, implemented by `flock`."""
    import fcntl

    module = types.ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, count: int) -> None:
        kind = {0: fcntl.LOCK_UN, 2: fcntl.LOCK_EX | fcntl.LOCK_NB}[mode]
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Windows: Permission denied") from error

    module.__dict__.update(locking=locking, LK_UNLCK=0, LK_NBLCK=2)
    return module


def find(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """Import modules; for rlplug's modules, return the simulated ones."""
    if level or not str((globals or {}).get("__name__", "")).startswith(OURS):
        return _import(name, globals, locals, fromlist, level)
    if name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
    if name == "msvcrt":
        return fake_msvcrt()
    module = _import(name, globals, locals, fromlist, level)
    shown = name if fromlist else name.partition(".")[0]
    if shown not in NAMES:
        return module
    if shown not in _modules:
        _modules[shown] = WindowsModule(sys.modules[shown], set(NAMES[shown].split()), OTHERS.get(shown, {}))
    return _modules[shown]


_modules: dict[str, WindowsModule] = {}
builtins.__import__ = find
builtins.open = open_any
shutil.rmtree = rmtree
pathlib.Path.open = path_open
pathlib.Path.mkdir = mkdir
guard(pathlib.Path, "rename", rename, returns=True)
guard(pathlib.Path, "replace", replace, returns=True)
guard(pathlib.Path, "unlink", unlink)
