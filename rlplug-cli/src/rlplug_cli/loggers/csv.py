"""`--log csv`: all metrics of a run as a table, `metrics.csv` in its directory, a row for each record."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from rlplug_cli.loggers.following import Follower, numbers
from rlplug_core.config import open_regular, replace_file
from rlplug_core.plugins import RunView, hookimpl
from rlplug_core.runs import JournalRecord, read_journal, writing

NAME = "metrics.csv"
_tables: dict[Path, Table] = {}


@hookimpl
def rlplug_run_start(run: RunView) -> None:
    """Write the records of the journal, without those that a resume superseded."""
    _tables[run.path] = Table(run.path / NAME, run.journal)


@hookimpl
def rlplug_run_log(run: RunView) -> None:
    _tables[run.path].write()


@hookimpl
def rlplug_run_end(run: RunView) -> None:
    if table := _tables.pop(run.path, None):  # a run may fail before it starts
        table.write()


class Table:
    """Return the columns `step`, `time` (seconds since the epoch) and one per metric; missing values are empty."""

    def __init__(self, path: Path, journal: Path) -> None:
        self.path = path
        self.follower = Follower(journal)
        self.columns = ["step", "time"]
        with writing(path):
            replace_file(path, self._text([]))
        self.write()

    def write(self) -> None:
        """Append new rows; a new metric rewrites the whole table."""
        records = [record for record in self.follower.new() if numbers(record)]
        names = dict.fromkeys(name for record in records for name in numbers(record))
        added = [name for name in names if name not in self.columns]
        self.columns += added
        with writing(self.path):
            if added:
                replace_file(
                    self.path, self._text(read_journal(self.follower.journal), header=True)
                )
            elif records:
                with open_regular(self.path, "ab") as file:
                    file.write(self._text(records))

    def _text(self, records: Iterable[JournalRecord], header: bool = False) -> bytes:
        text = io.StringIO()
        table = csv.DictWriter(text, self.columns, lineterminator="\n")
        if header:
            table.writeheader()
        for record in records:
            if found := numbers(record):
                table.writerow({"step": record.step, "time": record.time / 1000, **found})
        return text.getvalue().encode()
