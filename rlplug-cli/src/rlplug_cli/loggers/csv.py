"""`--log csv`: all metrics of a run as a table, `metrics.csv` in its directory, a row for each record."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from rlplug_cli.loggers.following import PREFIX, Follower, finite_metrics, names_of
from rlplug_core.config import open_regular, replace_file
from rlplug_core.errors import NotWritten, RlplugError, warn
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
        if table.incomplete:
            raise RlplugError(f"{table.path} lacks rows; 'rlplug resume' writes them")


class Table:
    """The columns `step`, `time` (seconds since the epoch) and one per metric; missing values are empty."""

    def __init__(self, path: Path, journal: Path) -> None:
        self.path = path
        self.follower = Follower(journal)
        self.columns: dict[str, None] = {}
        self.incomplete = True  # it lacks rows: nothing was written yet, or a write failed
        self.write()

    def write(self) -> None:
        try:
            with writing(self.path):
                records = [] if self.incomplete else list(self.follower.new())
                if self.incomplete or not names_of(records).keys() <= self.columns.keys():
                    self._write_all()
                elif records:
                    with open_regular(self.path, "ab") as file:
                        file.writelines(self._rows(records))
        except NotWritten as error:  # the next call writes the whole table again
            self.incomplete = True
            warn(str(error))

    def _write_all(self) -> None:
        journal = self.follower.journal
        self.follower.position = journal.stat().st_size  # only this process adds to it
        self.columns = {"step": None, "time": None} | names_of(read_journal(journal, kinds=PREFIX))
        rows = self._rows(read_journal(journal, kinds=PREFIX))
        replace_file(self.path, chain([self._line(self.columns)], rows))
        self.incomplete = False

    def _rows(self, records: Iterable[JournalRecord]) -> Iterator[bytes]:
        for record in filter(finite_metrics, records):
            row = {"step": record.step, "time": record.time / 1000, **finite_metrics(record)}
            yield self._line(row.get(name, "") for name in self.columns)

    def _line(self, cells: Iterable[object]) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        return line.getvalue().encode()
