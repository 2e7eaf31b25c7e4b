"""Messages about files of runs: write errors with a remedy, and paths as a shell needs them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from shlex import quote

from rlplug_core.errors import NotWritten

#: What to do about an error, by its number.
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EROFS: "make the file system writable",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EMFILE: "allow more open files (`ulimit -n`)",
    errno.ENFILE: "close programs, as too many files are open",
    errno.EFBIG: "allow larger files (`ulimit -f`)",
    errno.ESTALE: "check that its file server runs",
    errno.EIO: "check the disk for faults",
    errno.ENOENT: "check that its directory exists",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert the OSErrors of a block that writes a file of a run.

    Raises:
        NotWritten: the system refused.
    """
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        reason = os.strerror(code) if code else str(error)
        remedy = REMEDIES.get(code, REMEDIES[errno.EIO])
        raise NotWritten(f"{path} cannot be written: {reason}", remedy) from error


def put_aside(path: Path) -> None:
    """Rename a file of a run, if it exists: `error.txt` becomes `error-1.txt`, or gets the first free number.

    Raises:
        NotWritten: the system refused.
    """
    if os.path.lexists(path):
        candidates = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
        with writing(path):
            path.rename(
                next(candidate for candidate in candidates if not os.path.lexists(candidate))
            )


def shell_word(text: Path | str) -> str:
    """Return a path as a shell needs it, quoted with double quotes because messages quote commands with single ones."""
    word = str(text)
    return word if quote(word) == word else '"' + re.sub(r'([$`"\\])', r"\\\1", word) + '"'
