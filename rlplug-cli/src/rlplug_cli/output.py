"""Print what a command has to say: texts without control characters, and JSON that nothing else gets between."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

import click

from rlplug_core.errors import UsageError, clean
from rlplug_core.loop.safe_streams import lasting


@dataclass(frozen=True)
class Asked:
    """Wishes beside the command: `out` is the stream for what a script reads, without one it is stdout."""

    out: IO[str] | None = None
    traceback: bool = False


def asked() -> Asked:
    """Return what was asked for beside the present command."""
    found: Asked | None = click.get_current_context().find_root().obj
    return found or Asked()


@contextmanager
def into_file(path: Path) -> Iterator[None]:
    """Write a file that the user named; its directory is made where there is none.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        no_place = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is no directory" if no_place else error.strerror
        raise UsageError(f"{path} cannot be written: {reason}; name another file") from error


def echo(text: str, *, err: bool = False) -> None:
    """Print a text, foreign parts of it cleaned of escape codes."""
    click.echo(clean(text), err=err)


def echo_json(value: object) -> None:
    """Print a value as JSON."""
    emit(json.dumps(value, indent=1))


def redraws(stream: TextIO) -> bool:
    """Return whether a picture printed to a stream takes the place of the one before.

    So it does on a terminal, but not on the one that a notebook's `!command` writes to, which keeps every picture.
    """
    return stream.isatty() and "JPY_PARENT_PID" not in os.environ


def emit(text: str) -> None:
    """Print what a script reads to where `aside` keeps a place for it, else to stdout."""
    click.echo(text, file=asked().out)


@contextmanager
def aside(to_the_end: bool = False, to_nobody: bool = False) -> Iterator[IO[str]]:
    """Send to stderr what environments, libraries and their processes print; yields the stream that is stdout's own.

    With `to_the_end` it stays so: a library may print when the process exits. With `to_nobody` it is no error that what
    is written to this stream has no reader any more.
    """
    stdout = sys.stdout
    stdout.flush()
    try:
        number = stdout.fileno()
        kept = os.dup(1)
    except (OSError, io.UnsupportedOperation):  # stdout is no file of the system's, or is closed
        number = kept = -1
    file = os.fdopen(os.dup(kept), "w", encoding="utf-8") if number == 1 else stdout
    own = lasting(file) if to_nobody else file
    try:
        if number == 1:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield own
    finally:
        own.flush()
        if number == 1:
            own.close()
            file.close()
            if not to_the_end:
                os.dup2(kept, 1)
        if kept >= 0:
            os.close(kept)
