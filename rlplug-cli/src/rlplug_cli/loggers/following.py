"""Follow a run's journal: the truth that every logger copies, so that it forgets nothing and tells nothing twice."""

from __future__ import annotations

import math
from pathlib import Path

from rlplug_core.runs import JournalRecord, tail_journal, valid_records

#: The kinds of records with metrics, and the prefix of their names.
PREFIX = {"metrics": "", "evaluation": "", "final_eval": "final_eval/"}


class Follower:
    """Passes on new records of a journal; the first time, all records that no resume superseded."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.position = 0

    def new(self) -> list[JournalRecord]:
        found = list(tail_journal(self.journal, self.position))
        self.position = found[-1][1] if found else self.position
        return valid_records(record for record, _ in found)


def numbers(record: JournalRecord) -> dict[str, float]:
    """The finite metrics of a record by name; empty for records of other kinds."""
    prefix = PREFIX.get(record.kind)
    if prefix is None:
        return {}
    found = {
        prefix + name: value
        for name, value in record.data.items()
        if isinstance(value, int | float)
    }
    return {
        name: float(value)
        for name, value in found.items()
        if not isinstance(value, bool) and math.isfinite(value)
    }
