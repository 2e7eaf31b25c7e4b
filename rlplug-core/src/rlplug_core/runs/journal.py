"""The journal: one JSON record per line, append-only. It is the source of truth of a run; loggers mirror it.

A record is `{"seq": int, "time": int, "kind": str, "step": int, "data": {...}}`; `time` is milliseconds since the
epoch, taken once. Kinds: `start`, `metrics`, `episodes`, `evaluation`, `settings`, `scale`, `checkpoint`, `final_eval`,
`film`, `image`, `video`, `tag`, `exchange`, `error`, `end`.

A process that continues from a checkpoint supersedes later records: `after` in its `start` is the number of the last
record before the checkpoint. `read` skips superseded records; nothing is ever deleted. The functions that read are in
`journal_reader`.
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

    An existing file loses an incomplete last line, and the sequence numbers continue. `after` is the number of the last
    valid record. If a later measurement is repeated at the same step, the new record gets the time of the old one and
    the old values under `perf/…`, so mirrors have no duplicates.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        self.path = path
        #: The time and the value of each superseded measurement, by kind, step and name.
        self._earlier: dict[tuple[str, int, str], tuple[int, object]] = {}
        self.seq = last_number(path) if path.exists() else 0
        self.after = self.seq if after is None else min(after, self.seq)
        self._remember()
        with writing(path):
            self._file = open_regular(path, "ab+")
            self._size = _drop_torn_line(self._file)

    def write(
        self,
        kind: str,
        step: int,
        data: Mapping[str, object],
    ) -> Record:
        """Append one record and hand it to the operating system.

        Raises:
            NotWritten: the disk did not accept it; then the file has no part of it.
        """
        moment = int(time.time() * 1000)
        recorded = dict(data)
        if kind in ("metrics", "evaluation") and self._earlier:
            moment = self._reuse_first_values(kind, step, recorded, moment)
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
    def is_gone(self) -> bool:
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
        """Store the measurements after the record `after`."""
        if self.after == self.seq:
            return
        before = locate(self.path, self.after)
        records = tail(self.path, before[1], self.after) if before else tail(self.path, 0, 0)
        for record, _ in records:
            if record.seq > self.after and record.kind in ("metrics", "evaluation"):
                for key, value in record.data.items():
                    self._earlier[record.kind, record.step, key] = (record.time, value)

    def _reuse_first_values(
        self,
        kind: str,
        step: int,
        data: dict[str, object],
        moment: int,
    ) -> int:
        """Give a repeated measurement its first time and its first `perf/` values; return the time of the record."""
        for key in data:
            earlier = self._earlier.pop((kind, step, key), None)
            if earlier is None:
                continue
            moment = min(moment, earlier[0])
            if key.startswith("perf/"):
                data[key] = earlier[1]
        return moment


def _drop_torn_line(file: IO[bytes]) -> int:
    """Drop an incomplete last line; return the remaining size."""
    size = end = os.fstat(file.fileno()).st_size
    complete = 0
    while end and not complete:
        start = max(0, end - BLOCK)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        complete = start + 1 + newline if newline >= 0 else 0
        end = start
    if complete < size:
        file.truncate(complete)
    return complete
