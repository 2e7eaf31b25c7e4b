"""All finished episodes of a run as one Parquet table, made from its journal at the run's end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from rlplug_core.loop import EPISODE_INFO
from rlplug_core.plugins import RunView, hookimpl
from rlplug_core.runs import read_journal, writing

Columns: TypeAlias = dict[str, list[float | None]]
NAME = "episodes.parquet"
_COLUMNS = ("steps", "returns", "lengths", "workers")


@hookimpl
def rlplug_run_end(run: RunView, status: str) -> None:
    """Write the table of a finished run."""
    if status == "finished":
        write(run.path)


def write(run: Path) -> Path | None:
    """Write `episodes.parquet` into a run directory; None for a run without a finished episode.

    Columns: `step` (env step of the end), `return`, `length`, `worker`, `time` (of the record, milliseconds), and
    `info/NAME` for each number in `info` at the end of an episode; null without one.
    """
    columns: Columns = {name: [] for name in (*_COLUMNS, "time")}
    for record in read_journal(run / "journal.jsonl", kinds=("episodes",)):
        before = len(columns["time"])
        count = len(record.data["steps"])
        columns["time"] += [record.time] * count
        for name, values in record.data.items():
            if name in _COLUMNS or name.startswith(EPISODE_INFO):
                columns.setdefault(name, [None] * before)
                columns[name] += values
        for values in columns.values():
            values += [None] * (before + count - len(values))
    return _save(run / NAME, columns) if columns["steps"] else None


def _save(path: Path, columns: Columns) -> Path:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "step": pyarrow.array(columns["steps"], pyarrow.int64()),
            "return": pyarrow.array(columns["returns"], pyarrow.float64()),
            "length": pyarrow.array(columns["lengths"], pyarrow.int64()),
            "worker": pyarrow.array(columns["workers"], pyarrow.int32()),
            "time": pyarrow.array(columns["time"], pyarrow.timestamp("ms")),
            **{
                name: pyarrow.array(values, pyarrow.float64())
                for name, values in columns.items()
                if name.startswith(EPISODE_INFO)
            },
        }
    )
    temporary = path.with_suffix(f".tmp-{os.getpid()}")
    with writing(path):
        temporary.unlink(missing_ok=True)  # a link to elsewhere must not be followed
        pyarrow.parquet.write_table(table, temporary)
        temporary.replace(path)
    return path
