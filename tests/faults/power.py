"""The power fails at every file operation of a run: changes without a sync are undone, and the run still ends equally.

    python -m tests.faults.power [SHARE]      the number of trials and the errors; a share below 1 tests only this share

The model is the strictest one that POSIX allows: a name that is made, renamed or deleted in a directory is permanent
after the next sync of that directory, and bytes are after the next sync of their file. It needs Linux.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.files import RUN
from tests.faults.trials import differences, resume, run_to_end, start, wait


class Disk:
    """Records the file operations of a process below `runs/`; the power fails at operation number `last`."""

    def __init__(self, last: int, count: Path) -> None:
        self.last = last
        self.count = count
        self.operations = 0
        self.quiet = False  # during its own operations
        self.backups = Path(tempfile.mkdtemp(dir=count.parent))  # on the same disk, for links
        #: Functions that undo changes of names; a sync of the directory makes the change permanent.
        self.undo: list[tuple[Path, Callable[[], None]]] = []
        #: The permanent size of each written file.
        self.sizes: dict[Path, int] = {}
        self.fsync = os.fsync

    def start(self) -> None:
        os.fsync = self.sync
        sys.addaudithook(self.record)

    def record(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an operation before it happens."""
        if self.quiet or event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        paths = [_absolute(path) for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)]
        if event in ("os.remove", "os.rmdir") and isinstance(arguments[1], int) and arguments[1] >= 0:
            paths = [Path(os.readlink(f"/proc/self/fd/{arguments[1]}")) / os.fsdecode(arguments[0])]
        if not paths or "runs" not in paths[0].parts:
            return
        self.quiet = True
        try:
            if event == "open":
                self.open(paths[0], arguments[2])
            else:
                self.step()
                getattr(self, event.partition(".")[2])(*paths)
        finally:
            self.quiet = False

    def step(self) -> None:
        """Count an operation; the power fails if it is the last one."""
        self.operations += 1
        if self.operations > self.last >= 0:
            self.fail()

    def open(self, path: Path, flags: int | None) -> None:
        if not flags or not flags & (os.O_WRONLY | os.O_RDWR) or path.is_dir():
            return
        self.step()
        if not path.exists():
            self.undo.append((path.parent, lambda: path.unlink(missing_ok=True)))
            self.sizes[path] = 0
        self.sizes.setdefault(path, path.stat().st_size if path.exists() else 0)

    def mkdir(self, path: Path, *_: Path) -> None:
        self.undo.append((path.parent, lambda: shutil.rmtree(path, ignore_errors=True)))

    def rename(self, source: Path, target: Path) -> None:
        before = self.backup(target)

        def undo() -> None:
            _move(target, source)
            _move(before, target)

        self.undo.append((target.parent, undo))
        for path in [file for file in self.sizes if file == source or source in file.parents]:
            self.sizes[target / path.relative_to(source)] = self.sizes.pop(path)

    def remove(self, path: Path) -> None:
        before = self.backup(path)
        self.undo.append((path.parent, lambda: _move(before, path)))

    def rmdir(self, path: Path) -> None:
        self.undo.append((path.parent, lambda: path.mkdir(exist_ok=True) if path.parent.is_dir() else None))

    def backup(self, path: Path) -> Path | None:
        """Link a file before it is replaced or deleted; return None if it does not exist."""
        if not path.is_file():
            return None
        link = self.backups / str(len(list(self.backups.iterdir())))
        os.link(path, link)
        return link

    def sync(self, file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if "runs" in path.parts:
            self.step()
            self.quiet = True
            if path.is_dir():
                self.undo = [(directory, undo) for directory, undo in self.undo if directory != path]
            elif path in self.sizes:
                self.sizes[path] = path.stat().st_size
            self.quiet = False
        self.fsync(file)

    def fail(self) -> None:
        """Undo all changes without a sync, the latest first, and kill the process."""
        self.quiet = True
        for path, size in self.sizes.items():
            if path.is_file() and path.stat().st_size > size:
                os.truncate(path, size)
        for _, undo in reversed(self.undo):
            undo()
        os.kill(os.getpid(), signal.SIGKILL)


def _move(source: Path | None, target: Path) -> None:
    """Move a file or a directory back, unless it or the parent of the target is missing."""
    if source is not None and source.exists() and target.parent.is_dir():
        source.rename(target)


def _absolute(path: str | bytes | os.PathLike[str]) -> Path:
    absolute = Path(os.path.abspath(os.fsdecode(path)))
    return Path(os.path.realpath(absolute.parent), absolute.name)  # its directory may be a descriptor


def trial(last: int, place: Path, complete: Path) -> str:
    """Let the power fail at an operation and resume; return the error if there is one."""
    run = place / "runs" / "hit"
    shutil.rmtree(place / "runs", ignore_errors=True)
    code = wait(start(RUN, place, power=last))
    if code == 0:  # it had fewer operations
        return ""
    if code != -signal.SIGKILL:
        return f"it ended with {code}"
    if not (run / "config.json").exists():
        run_to_end(RUN, place)
    if failure := resume(run, place):
        return f"it does not continue: {failure}"
    return "; ".join(differences(run, complete))


def table(share: float = 1.0, seed: int = 0) -> tuple[int, list[str]]:
    """Return the number of trials and the errors, after a run that counts the operations."""
    draw = random.Random(seed)
    wrong = []
    trials = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        assert wait(start(RUN, place, power=-1)) == 0, (place / "output.txt").read_text()
        operations = int((place / "operations").read_text())
        complete = (place / "runs").rename(place / "complete") / "hit"
        for number in range(operations):
            if draw.random() < share:
                trials += 1
                if found := trial(number, place, complete):
                    wrong.append(f"operation {number} of {operations}: {found}")
                    print(wrong[-1], file=sys.stderr, flush=True)  # noqa: T201
    return trials, wrong


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    trials, found = table(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    print(f"{trials} power failures, {len(found)} wrong")  # noqa: T201 - the result of this command
    sys.exit(min(1, len(found)))
