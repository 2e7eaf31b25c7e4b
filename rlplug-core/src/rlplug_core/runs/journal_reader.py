"""Reads journals of any length in bounded memory: forwards, backwards, or from the record with a given number.

Most readers need only a few kinds of records: their lines are searched in blocks, and only they are parsed.
"""

from __future__ import annotations

import io
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO

from rlplug_core.config.files import open_regular
from rlplug_core.runs.schemas import Record, parse_record

#: Kinds of records that training measures again when it continues from a checkpoint.
MEASURED = ("metrics", "episodes", "evaluation", "final_eval")
#: Largest number of bytes of a line; a longer one is not a record.
LINE = 64 << 20
#: Bytes that are read at once.
BLOCK = 2**20


def read(
    path: Path,
    after: int = 0,
    kinds: Collection[str] = (),
) -> Iterator[Record]:
    """Yield the complete records with a sequence number above `after` that no later start superseded.

    Lines that a loss of power damaged are skipped. With `kinds`, other kinds are skipped too, most of them without
    being parsed. Records that are written meanwhile are left out. A missing journal has no records: its run was killed
    before the first one.

    Raises:
        BadFile: the journal is not a regular file. OSError: it cannot be read.
    """
    with suppress(FileNotFoundError), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        has_measurements = not kinds or not set(kinds).isdisjoint(MEASURED)
        starts = _Starts(_records(file, size, ("start",)) if has_measurements else ())
        for record, position in _records(file, size, kinds):
            if record.seq > after and not starts.supersede(record, position):
                yield record


def read_backwards(
    path: Path,
    kinds: Collection[str] = (),
) -> Iterator[Record]:
    """Yield the records of `read` from the last to the first; the newest ones of a long journal come immediately.

    Raises:
        BadFile: the journal is not a regular file. OSError: it cannot be read.
    """
    with suppress(FileNotFoundError), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        starts = _Starts(_records(file, size, ("start",)))
        for line, position in _lines_backwards(file, size):
            record = parse_record(line)
            if record is None or (kinds and record.kind not in kinds):
                continue
            if not starts.supersede(record, position):
                yield record


def valid_records(records: Iterable[Record]) -> list[Record]:
    """Return the records of a journal that no later start superseded."""
    valid: list[Record] = []
    for record in records:
        if record.kind == "start":
            valid = [earlier for earlier in valid if not _is_superseded(earlier, record)]
        valid.append(record)
    return valid


def tail(
    path: Path,
    position: int,
    last: int | None = None,
) -> Iterator[tuple[Record, int]]:
    """Yield the records from a byte position on, each with the position after it; stop before an unfinished line.

    A caller that keeps the last position reads only new records the next time. Superseded records are included.

    Args:
        last: the sequence number of the record before the position; then a record with a number that cannot follow
            counts as damaged.
    """
    lines = _records_with_positions(path, position)
    return (
        (record, end)
        for record, end in (lines if last is None else _records_in_order(lines, last))
        if record is not None
    )


def locate(path: Path, number: int) -> tuple[Record, int] | None:
    """Return the record with a sequence number and the byte position after it, or None if there is none.

    Sequence numbers increase, so a binary search finds it. If damaged lines mislead the search, the whole journal is
    read.
    """
    with open_regular(path) as file:
        low = _block_of(file, number)
        entry = None if low is None else _search_block(file, number, low)
    if entry is None:
        entry = next(
            (candidate for candidate in tail(path, 0, 0) if candidate[0].seq >= number), None
        )
    return entry if entry is not None and entry[0].seq == number else None


def last_number(path: Path) -> int:
    """Return the sequence number of the last complete record, 0 if there is none."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - BLOCK))
        lines = file.read(BLOCK).split(b"\n")[1 if size > BLOCK else 0 : -1]
    numbers = [record.seq for line in lines if (record := parse_record(line + b"\n"))]
    # A number is not damaged if the next record has the next number.
    confirmed = next(
        (number for number, following in pairwise(numbers) if following == number + 1), None
    )
    if confirmed is None:
        return max((record.seq for record, _ in tail(path, 0, 0)), default=0)
    records = ((parse_record(line + b"\n"), 0) for line in lines)
    return max(record.seq for record, _ in _records_in_order(records, confirmed - 1))


def _block_of(file: IO[bytes], number: int) -> int | None:
    """Return the start of the block with a record; None if the binary search meets a damaged line."""
    low = 0
    high = os.fstat(file.fileno()).st_size
    while high - low > BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        start = middle + len(file.readline(LINE))
        line = file.readline(LINE)
        record = parse_record(line)
        if record is None and line:
            return None
        if record is not None and record.seq <= number:
            low = start
        else:
            high = middle
    return low


def _search_block(
    file: IO[bytes],
    number: int,
    position: int,
) -> tuple[Record, int] | None:
    """Search for a record line by line from a position on; None if there is a damaged line before or after it."""
    entry: tuple[Record, int] | None = None
    for line, end in _lines(file, position):
        record = parse_record(line)
        if entry is not None:
            return entry if record is not None and record.seq == number + 1 else None
        if record is not None and record.seq == number:
            entry = record, end
        elif record is None or record.seq > number:
            return None
    return entry


def _records_with_positions(
    path: Path,
    position: int,
) -> Iterator[tuple[Record | None, int]]:
    """Yield the record of each finished line, None if it is damaged, and the position after it."""
    with open_regular(path) as file:
        for line, end in _lines(file, position):
            if not line.endswith(b"\n") and len(line) < LINE:
                return
            yield parse_record(line), end


def _lines(file: IO[bytes], position: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines from a byte position on, each with the position after it.

    Very long lines come in parts, because a line of a sparse file could fill the memory.
    """
    file.seek(position)
    for line in iter(partial(file.readline, LINE), b""):
        position += len(line)
        yield line, position


def _records_in_order(
    lines: Iterable[tuple[Record | None, int]],
    last: int,
) -> Iterator[tuple[Record, int]]:
    """Yield the records with numbers that can follow `last`; each damaged line accounts for one missing number."""
    missing = 0
    # A record with a larger number than expected, which counts if the next record has the next number.
    candidate = None
    for record, end in lines:
        if record is not None and candidate is not None and record.seq == candidate[0].seq + 1:
            yield candidate
        elif record is None or not last < record.seq <= last + 1 + missing:
            missing += 1
            candidate = (record, end) if record is not None and record.seq > last else None
            continue
        last = record.seq
        missing = 0
        candidate = None
        yield record, end


def _records(
    file: IO[bytes],
    size: int,
    kinds: Collection[str] = (),
) -> Iterator[tuple[Record, int]]:
    """Yield the records of these kinds (default: all) in the first `size` bytes, each with the position after it."""
    lines = _search_lines(file, size, kinds) if kinds else _lines(file, 0)
    for line, end in lines:
        if end - len(line) >= size:
            return
        record = parse_record(line)
        if record is not None and (not kinds or record.kind in kinds):
            yield record, end


def _search_lines(
    file: IO[bytes],
    size: int,
    kinds: Collection[str],
) -> Iterator[tuple[bytes, int]]:
    """Yield the lines that name one of these kinds, each with the position after it."""
    names = b"|".join(re.escape(kind).encode() for kind in kinds)
    pattern = re.compile(rb'"kind":"(?:%s)"' % names)
    file.seek(0)
    position = 0
    while position < size:
        block = file.read(BLOCK)
        block += file.readline(LINE)
        end = 0
        for match in pattern.finditer(block):
            if match.start() < end:
                continue
            start = block.rfind(b"\n", 0, match.start()) + 1
            end = block.find(b"\n", match.end()) + 1 or len(block)
            yield block[start:end], position + end
        position += len(block)
        if not block:  # the file was truncated meanwhile
            return


def _lines_backwards(
    file: IO[bytes],
    size: int,
) -> Iterator[tuple[bytes, int]]:
    """Yield the finished lines from the last one to the first, each with the position after it."""
    remainder = b""
    end = size
    while end > 0:
        start = max(0, end - BLOCK)
        file.seek(start)
        block = file.read(end - start) + remainder
        first = block.find(b"\n") + 1 if start else 0
        if start and not first and len(block) < LINE:  # no complete line yet
            remainder = block
            end = start
            continue
        position = start + len(block)
        for line in reversed(io.BytesIO(block[first:]).readlines()):
            yield line, position
            position -= len(line)
        remainder = block[:first]
        end = start


class _Starts:
    """The `start` records of a journal, which supersede earlier measurements."""

    def __init__(self, starts: Iterable[tuple[Record, int]]) -> None:
        self.records: list[Record] = []
        self.positions: list[int] = []
        for record, position in starts:
            if "after" in record.data:
                self.records.append(record)
                self.positions.append(position)
        #: For each start, the lowest `after` of it and of all later ones.
        self.lowest = [record.data["after"] for record in self.records]
        for index in range(len(self.lowest) - 2, -1, -1):
            self.lowest[index] = min(self.lowest[index], self.lowest[index + 1])

    def supersede(self, record: Record, position: int) -> bool:
        """Return whether a later start superseded a record that ends at this position."""
        next_start = bisect_right(self.positions, position)
        if next_start == len(self.positions) or record.seq <= self.lowest[next_start]:
            return False
        if record.kind != "final_eval":
            return record.kind in MEASURED
        return any(_is_superseded(record, start) for start in self.records[next_start:])


def _is_superseded(record: Record, start: Record) -> bool:
    """Return whether the process of this start repeats a record.

    A final evaluation belongs to the weights of its step, so a start at this step or later keeps it.
    """
    if record.kind not in MEASURED or "after" not in start.data:
        return False
    return bool(record.seq > start.data["after"]) and (
        record.kind != "final_eval" or record.step > start.step
    )
