"""The journal: one JSON record per line, append-only; the truth of the run directory, which loggers mirror.

A record is `{"seq": int, "time": int, "kind": str, "step": int, "data": {...}}`; `time` is milliseconds since the
epoch, taken once. Kinds: `start`, `metrics`, `episodes`, `evaluation`, `checkpoint`, `final_eval`, `film`, `tag`,
`error`, `end`.

A process that continues from a checkpoint supersedes later records: `after` in its `start` names the last
record that the checkpoint had seen. `read` skips superseded records; nothing is ever deleted.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from rlplug_core.config.files import open_regular
from rlplug_core.runs.files import writing
from rlplug_core.runs.schemas import Record, parse_record

__all__ = ["Journal", "Record", "read", "standing", "tail"]

#: Kinds of records that training measures again when it continues from a checkpoint.
MEASURED = ("metrics", "episodes", "evaluation", "final_eval")
#: Largest number of bytes of a line; a longer one is not a record.
LINE = 64 << 20
#: Bytes that are read at once in search of the last line's end.
BLOCK = 2**20


class Journal:
    """Appends records; the only writer of its file.

    Opened again, it drops a torn last line and continues the count. With `after`, the last valid record, it
    remembers later measurements: one that is made again at the same step keeps its first time, and a time
    measurement its first value, so that mirrors stay free of duplicates.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        self.path = path
        self._seen: dict[tuple[str, int, str], tuple[int, object]] = {}
        self.changed: list[str] = []
        records = [record for record, _ in tail(path, 0, 0)] if path.exists() else []
        self.seq = records[-1].seq if records else 0
        self.after = self.seq if after is None else min(after, self.seq)
        self._remember(records)
        with writing(path):
            self._file = open_regular(path, "ab+")  # open as long as the run
            self._size = _ends_with_newline(self._file.fileno())

    def write(self, kind: str, step: int, data: Mapping[str, object]) -> Record:
        """Append one record and hand it to the operating system.

        Raises:
            NotWritten: the disk took less than all of it; nothing of it is left in the file.
        """
        moment = int(time.time() * 1000)
        kept = dict(data)
        if kind in ("metrics", "evaluation") and self._seen:
            moment = self._replay(kind, step, kept, moment)
        record = Record(self.seq + 1, moment, kind, step, kept)
        line = {"seq": record.seq, "time": moment, "kind": kind, "step": step, "data": kept}
        with writing(self.path):
            self._append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.seq = record.seq
        return record

    def sync(self) -> None:
        """Flush all records to disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    @property
    def lost(self) -> bool:
        """Return whether the file, or its directory, was deleted or moved."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except OSError:
            return True

    def _append(self, line: bytes) -> None:
        """All of a line or nothing: half of one would swallow the next."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)

    def _remember(self, records: list[Record]) -> None:
        for record in records:
            if record.seq > self.after and record.kind in ("metrics", "evaluation"):
                for key, value in record.data.items():
                    self._seen[record.kind, record.step, key] = (record.time, value)

    def _replay(self, kind: str, step: int, data: dict[str, object], moment: int) -> int:
        for key in data:
            found = self._seen.pop((kind, step, key), None)
            if found is None:
                continue
            moment = min(moment, found[0])
            if key.startswith("perf/"):
                data[key] = found[1]
            elif found[1] != data[key]:
                self.changed.append(f"{key} at step {step}")
        return moment


def read(path: Path, after: int = 0, kinds: Collection[str] = ()) -> Iterator[Record]:
    """The whole records with a sequence number above `after` that no later start took back.

    Lines that a loss of power damaged are skipped. With `kinds`, other kinds are skipped too, most of
    them without being parsed.
    """
    records = _whole(path, {*kinds, "start"} if kinds else ())
    return (
        one for one in standing(records) if one.seq > after and (not kinds or one.kind in kinds)
    )


def standing(records: Iterable[Record]) -> list[Record]:
    """Those of a journal's records that no later start took back."""
    kept: list[Record] = []
    for record in records:
        if record.kind == "start" and kept:
            kept = [one for one in kept if not _is_superseded(one, record)]
        kept.append(record)
    return kept


def tail(path: Path, position: int, last: int | None = None) -> Iterator[tuple[Record, int]]:
    """Yield the whole records from a byte position on, each with the position after it; stop before an unfinished line.

    A caller that keeps the last position reads only new records the next time. Superseded ones are included. With the
    sequence number of the `last` record before the position, a number that cannot come next counts as damage.
    """
    lines = _records_with_positions(path, position)
    return (
        (one, place)
        for one, place in (lines if last is None else _in_order(lines, last))
        if one is not None
    )


def _records_with_positions(path: Path, position: int) -> Iterator[tuple[Record | None, int]]:
    """Yield the record of each finished line, None if it is damaged, and the position after it."""
    with open_regular(path) as file:
        file.seek(position)
        for line in _lines(file):
            if not line.endswith(b"\n") and len(line) < LINE:
                return
            position += len(line)
            yield parse_record(line), position


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, one that is too long in parts: a hole in a file would fill the memory."""
    return iter(partial(file.readline, LINE), b"")


def _in_order(
    lines: Iterable[tuple[Record | None, int]], last: int
) -> Iterator[tuple[Record, int]]:
    """Yield records with numbers that rise from `last` by one more than the damaged lines between them."""
    missing = 0
    odd = None
    for record, place in lines:
        if record is not None and odd is not None and record.seq == odd[0].seq + 1:
            yield odd
        elif record is None or not last < record.seq <= last + 1 + missing:
            missing += 1
            odd = (record, place) if record is not None and record.seq > last else None
            continue
        last = record.seq
        missing = 0
        odd = None
        yield record, place


def _whole(path: Path, kinds: Collection[str]) -> Iterator[Record]:
    """Yield every whole record of these kinds (default: all), superseded ones included."""
    wanted = re.compile(f'"kind":"({"|".join(kinds)})"'.encode()).search
    with open_regular(path) as file:
        for line in _lines(file):
            if kinds and not wanted(line):
                continue
            record = parse_record(line)
            if record is not None and (not kinds or record.kind in kinds):
                yield record


def _is_superseded(record: Record, start: Record) -> bool:
    """A final evaluation counts for the weights of its step, so a run that goes beyond it takes nothing back."""
    if record.kind not in MEASURED or "after" not in start.data:
        return False
    return bool(record.seq > start.data["after"]) and (
        record.kind != "final_eval" or record.step > start.step
    )


def _ends_with_newline(file: int) -> int:
    """Drop a torn last line; the size that is left."""
    size = end = os.fstat(file).st_size
    whole = 0
    while end and not whole:
        begin = max(0, end - BLOCK)
        whole = (
            begin + 1 + found
            if (found := os.pread(file, end - begin, begin).rfind(b"\n")) >= 0
            else 0
        )
        end = begin
    if whole < size:
        os.ftruncate(file, whole)
    return whole
