"""Prints a command's output: text without control characters, and JSON that nothing else interrupts."""

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


@dataclass(frozen=True)
class GlobalOptions:
    """Options that apply to every command; `out` is the stream for JSON, stdout if None."""

    out: IO[str] | None = None
    traceback: bool = False


def global_options() -> GlobalOptions:
    """Return the global options of the current command."""
    options: GlobalOptions | None = click.get_current_context().find_root().obj
    return options or GlobalOptions()


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn errors of writing a file into one sentence; its directory is created if needed.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        no_directory = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{path.parent} is not a directory" if no_directory else error.strerror
        raise UsageError(f"{path} cannot be written: {reason}; name another file") from error


def write_text(path: Path, text: str) -> None:
    """Write text to a file that the user named.

    Raises:
        UsageError: it cannot be written.
    """
    with writing_to(path):
        # A path in the text may have bytes that are not UTF-8.
        path.write_text(text, encoding="utf-8", errors="replace")


def echo(text: str, *, err: bool = False) -> None:
    """Print text without escape codes.

    The stream is named, because click writes UTF-8 to a default stream that can only encode ASCII.
    """
    click.echo(clean(text), file=sys.stderr if err else sys.stdout)


def echo_json(value: object) -> None:
    """Print a value as JSON."""
    emit(json.dumps(value, indent=1))


def redraws(stream: TextIO) -> bool:
    """Return whether a stream can redraw a display in place.

    A terminal can; the terminal of a notebook's `!command` cannot, because the notebook keeps everything.
    """
    return stream.isatty() and "JPY_PARENT_PID" not in os.environ


def emit(text: str) -> None:
    """Print output for scripts to the stream that `stdout_to_stderr` saved, else to stdout."""
    click.echo(text, file=global_options().out or sys.stdout)


@contextmanager
def stdout_to_stderr(
    until_exit: bool = False,
    ignore_broken_pipe: bool = False,
) -> Iterator[IO[str]]:
    """Send everything that environments, libraries and their processes print to stderr; yield the real stdout.

    Args:
        until_exit: do not restore stdout afterwards: a library may print when the process exits.
        ignore_broken_pipe: ignore that the reader of stdout is gone.
    """
    stdout = sys.stdout
    stdout.flush()
    number, saved = _save_stdout(stdout)
    file = os.fdopen(os.dup(saved), "w", encoding="utf-8") if number == 1 else stdout
    output: IO[str] = file
    if ignore_broken_pipe:
        from rlplug_core.loop import safe_stream  # not needed by help and lists

        output = safe_stream(file)
    try:
        if number == 1:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield output
    finally:
        output.flush()
        if number == 1:
            output.close()
            file.close()
            if not until_exit:
                os.dup2(saved, 1)
        if saved >= 0:
            os.close(saved)


def _save_stdout(stdout: TextIO) -> tuple[int, int]:
    """Return the descriptor of stdout and a copy of descriptor 1, or -1 and -1 if stdout is not an open file."""
    try:
        return stdout.fileno(), os.dup(1)
    except (OSError, io.UnsupportedOperation):
        return -1, -1
