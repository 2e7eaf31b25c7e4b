"""All finished episodes of a run as one Parquet table, made from its journal at the run's end."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rlplug_core.config import replace_file
from rlplug_core.loop import EPISODE_INFO
from rlplug_core.plugins import RunView, hookimpl
from rlplug_core.runs import read_journal, writing

if TYPE_CHECKING:
    from pyarrow import Array

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
        earlier_count = len(columns["time"])
        count = len(record.data["steps"])
        columns["time"] += [record.time] * count
        for name, values in record.data.items():
            if name in _COLUMNS or name.startswith(EPISODE_INFO):
                columns.setdefault(name, [None] * earlier_count)
                columns[name] += values
        for values in columns.values():
            values += [None] * (earlier_count + count - len(values))
    return _save(run / NAME, columns) if columns["steps"] else None


def _save(path: Path, columns: Columns) -> Path:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "step": _array(columns["steps"], "int64"),
            "return": _array(columns["returns"], "float64"),
            "length": _array(columns["lengths"], "int64"),
            "worker": _array(columns["workers"], "int32"),
            "time": _array(columns["time"], "datetime64[ms]"),
            **{
                name: _array(values, "float64")
                for name, values in columns.items()
                if name.startswith(EPISODE_INFO)
            },
        }
    )
    content = BytesIO()
    pyarrow.parquet.write_table(table, content)
    with writing(path):
        replace_file(path, content.getvalue())
    return path


def _array(values: list[float | None], kind: str) -> Array:
    """Return a column of a NumPy type, null for None; `pyarrow.array` imports pandas, a fifth of a short run's time."""
    import numpy as np
    from pyarrow import Array, from_numpy_dtype, py_buffer

    present = np.array([value is not None for value in values])
    numbers = np.array([0 if value is None else value for value in values], kind)
    buffers = [py_buffer(np.packbits(present, bitorder="little")), py_buffer(numbers.view("uint8"))]
    return Array.from_buffers(from_numpy_dtype(numbers.dtype), len(values), buffers)
