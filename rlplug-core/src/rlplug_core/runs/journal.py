"""The journal: one JSON record per line, append-only; the truth of the run directory, which loggers mirror.

A record is `{"seq": int, "time": int, "kind": str, "step": int, "data": {...}}`; `time` is milliseconds since the
epoch, taken once. Kinds: `start`, `metrics`, `episodes`, `evaluation`, `checkpoint`, `final_eval`, `film`, `tag`,
`error`, `end`.

A process that continues from a checkpoint supersedes later records: `after` in its `start` names the last
record that the checkpoint had seen. `read` skips superseded records; nothing is ever deleted. `journal_reader` reads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from rlplug_core.config.files import open_regular
from rlplug_core.runs.files import writing
from rlplug_core.runs.journal_reader import (
    BLOCK,
    MEASURED,
    last_number,
    locate,
    read,
    read_backwards,
    tail,
    valid_records,
)
from rlplug_core.runs.schemas import Record

__all__ = [
    "MEASURED",
    "Journal",
    "Record",
    "locate",
    "read",
    "read_backwards",
    "tail",
    "valid_records",
]


class Journal:
    """Appends records; the only writer of its file.

    Opened again, it drops a torn last line and continues the count. With `after`, the last valid record, it
    remembers later measurements: one that is made again at the same step keeps its first time, and a time
    measurement its first value, so mirrors have no duplicates.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        self.path = path
        self._seen: dict[tuple[str, int, str], tuple[int, object]] = {}
        self.changed: list[str] = []
        self.seq = last_number(path) if path.exists() else 0
        self.after = self.seq if after is None else min(after, self.seq)
        self._remember()
        with writing(path):
            self._file = open_regular(path, "ab+")  # open as long as the run
            self._size = _drop_torn_line(self._file)

    def write(
        self,
        kind: str,
        step: int,
        data: Mapping[str, object],
    ) -> Record:
        """Append one record and hand it to the operating system.

        Raises:
            NotWritten: the disk did not take all of it; the file then has no part of it.
        """
        moment = int(time.time() * 1000)
        recorded = dict(data)
        if kind in ("metrics", "evaluation") and self._seen:
            moment = self._replay(kind, step, recorded, moment)
        record = Record(self.seq + 1, moment, kind, step, recorded)
        line = {"seq": record.seq, "time": moment, "kind": kind, "step": step, "data": recorded}
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
        """Append a whole line or nothing: a partial line would damage the next one."""
        remaining = memoryview(line)
        try:
            while remaining:
                remaining = remaining[os.write(self._file.fileno(), remaining) :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)

    def _remember(self) -> None:
        """Keep the values of the measurements after the record `after`."""
        if self.after == self.seq:
            return
        before = locate(self.path, self.after)
        records = tail(self.path, before[1], self.after) if before else tail(self.path, 0, 0)
        for record, _ in records:
            if record.seq > self.after and record.kind in ("metrics", "evaluation"):
                for key, value in record.data.items():
                    self._seen[record.kind, record.step, key] = (record.time, value)

    def _replay(
        self,
        kind: str,
        step: int,
        data: dict[str, object],
        moment: int,
    ) -> int:
        """Give a repeated measurement its first time and its first `perf/` values; return the time of the record."""
        for key in data:
            earlier = self._seen.pop((kind, step, key), None)
            if earlier is None:
                continue
            moment = min(moment, earlier[0])
            if key.startswith("perf/"):
                data[key] = earlier[1]
            elif earlier[1] != data[key]:
                self.changed.append(f"{key} at step {step}")
        return moment


def _drop_torn_line(file: IO[bytes]) -> int:
    """Drop a torn last line; return the remaining size."""
    size = end = os.fstat(file.fileno()).st_size
    complete = 0
    while end and not complete:
        begin = max(0, end - BLOCK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        complete = begin + 1 + newline if newline >= 0 else 0
        end = begin
    if complete < size:
        file.truncate(complete)
    return complete
