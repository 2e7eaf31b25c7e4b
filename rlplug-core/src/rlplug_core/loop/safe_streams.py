"""Streams that ignore broken pipes: output that is no longer read, as with `| head -1`, does not end a run."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from rlplug_core.config.import_string import describe
from rlplug_core.errors import warn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


#: ASCII for characters that rlplug prints.
SPELLINGS = {
    **{
        "…": "...",
        "≥": ">=",
        "≤": "<=",
        "±": "+-",
        "\u00d7": "x",
        "·": "-",
        "\u2013": "-",
        "→": "->",
    },
    **{block: str(height) for height, block in enumerate("▁▂▃▄▅▆▇█", start=1)},
}
#: The error handler that writes these, and the name of ASCII with it: click replaces a stream of plain ASCII by UTF-8.
SPELL = "rlplug-spell"
ASCII = "rlplug-ascii"


def _spell_characters(error: UnicodeError) -> tuple[str, int]:
    """Return the spelling of characters that an encoding does not have, or `?`; an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(SPELLINGS.get(character, "?") for character in text), error.end


class AsciiEncoder(codecs.IncrementalEncoder):
    """Encodes every text as ASCII."""

    def encode(self, input: str, final: bool = False) -> bytes:
        return input.encode("ascii", SPELL)


def _find_ascii(name: str) -> codecs.CodecInfo | None:
    """Return the codec `ASCII`; a search function of `codecs`."""
    if name.replace("_", "-") != ASCII:
        return None
    plain = codecs.lookup("ascii")
    return codecs.CodecInfo(
        name=ASCII,
        encode=lambda text, errors="strict": (text.encode("ascii", SPELL), len(text)),
        decode=plain.decode,
        incrementalencoder=AsciiEncoder,
        incrementaldecoder=plain.incrementaldecoder,
    )


codecs.register_error(SPELL, _spell_characters)
codecs.register(_find_ascii)


def take_any_character(stream: TextIO) -> None:
    """Let a stream write every text: characters that its encoding does not have are spelled in ASCII, or `?`."""
    if isinstance(stream, io.TextIOWrapper):
        is_ascii = codecs.lookup(stream.encoding).name == "ascii"
        with suppress(OSError):  # a terminal that is open for reading too cannot seek
            stream.reconfigure(encoding=ASCII if is_ascii else None, errors=SPELL)


class SafeStream(io.FileIO):
    """The file under a stream; after the first write that fails, it ignores all writes.

    A write fails if a pipe has no reader, a terminal was closed, or a disk is full.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self.stream = stream  # a stream that is collected closes its file
        self.lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self.lost:
            try:
                return super().write(data)
            except OSError:
                self.lost = True
        return memoryview(data).nbytes


class NullStream(io.StringIO):
    """Ignores all writes; it replaces a stream that was closed before the run."""

    def write(self, text: str, /) -> int:
        return len(text)


class ProgramStream:
    """A program's own stream, such as a service's; after the first write or flush that raises, it ignores all.

    Its other attributes are those of the program's stream.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._lost = False

    def write(self, text: str, /) -> int:
        if not self._lost:
            try:
                return self._stream.write(text)
            except Exception as error:  # noqa: BLE001 - a program's own class may raise anything
                self._report_loss(error)
        return len(text)

    def flush(self) -> None:
        if not self._lost:
            try:
                self._stream.flush()
            except Exception as error:  # noqa: BLE001 - as above
                self._report_loss(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _report_loss(self, error: Exception) -> None:
        self._lost = True
        # A handler of `logging` flushes later, when the stream may be closed.
        if not getattr(self._stream, "closed", False):
            warn(
                f"this program's own {self._name} raised {describe(error)}; the run continues and prints nothing more "
                "there"
            )


class SafeTextStream(io.TextIOWrapper):
    """A text stream over a `SafeStream` file; its type prevents wrapping a stream twice."""

    def close(self) -> None:
        """Stay open: if foreign code closes stdout, the run must still print its report."""
        self.flush()


def safe_stream(stream: TextIO) -> TextIO:
    """Return a stream that writes to the same file and never fails; for a closed one, a stream that ignores all writes.

    Streams of this kind, of notebooks and of tests are returned unchanged.
    """
    if getattr(stream, "closed", False):
        return NullStream()
    if type(stream) is not io.TextIOWrapper:
        return stream
    try:
        file = SafeStream(stream)
    except io.UnsupportedOperation:  # it has no file descriptor
        return stream
    with suppress(OSError):
        stream.flush()
    return SafeTextStream(
        file if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=SPELL,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def make_streams_safe() -> None:
    """Let no output to stdout and stderr fail for the rest of the process."""
    sys.stdout, sys.stderr = safe_stream(sys.stdout), safe_stream(sys.stderr)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let no output to stdout and stderr fail in the block."""
    stdout = guard(safe_stream(sys.stdout), "stdout")
    stderr = guard(safe_stream(sys.stderr), "stderr")
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            yield
        finally:
            for stream in filter(None, (stdout, stderr)):  # a process may have started without them
                with suppress(ValueError, OSError):  # foreign code may have closed it
                    stream.flush()


def guard(stream: TextIO, name: str) -> TextIO:
    """Wrap a program's own stream, so that its errors do not end the run; return every other stream unchanged."""
    if stream is None or isinstance(stream, ProgramStream | NullStream | SafeTextStream):
        return stream
    return cast("TextIO", ProgramStream(stream, name))
