"""Follow a run's journal, which every logger copies, so that no record is lost or sent twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlplug_core.runs import JournalRecord, locate_record, read_journal, tail_journal

#: The kinds of records with metrics, and the prefix of their names.
PREFIX = {"metrics": "", "evaluation": "", "final_eval": "final_eval/"}


class Follower:
    """Passes on new records of a journal; the first time, all records that no resume superseded."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        #: The byte position after the last record that was passed on; 0 before the first time.
        self.position = 0

    def new(self) -> Iterator[JournalRecord]:
        """Yield the new records. A caller that fails before their end gets the rest the next time."""
        if not self.position:
            number = 0
            for record in read_journal(self.journal):
                number = record.seq
                yield record
            last = locate_record(self.journal, number)
            self.position = last[1] if last is not None else 0
        for record, position in tail_journal(self.journal, self.position):
            yield record
            self.position = position


def metrics(record: JournalRecord) -> dict[str, float]:
    """Return the metrics of a record by name; empty for records of other kinds."""
    prefix = PREFIX.get(record.kind)
    if prefix is None:
        return {}
    return {
        prefix + name: float(value)
        for name, value in record.data.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def finite_metrics(record: JournalRecord) -> dict[str, float]:
    """Return the metrics of a record without infinities and NaN."""
    return {name: value for name, value in metrics(record).items() if math.isfinite(value)}


def names_of(records: Iterable[JournalRecord]) -> dict[str, None]:
    """Return the names of the metrics in records, in the order of their first values."""
    return dict.fromkeys(name for record in records for name in finite_metrics(record))
