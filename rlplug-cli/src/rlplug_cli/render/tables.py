"""Tables for a terminal, and the facts about plugins that `list`, `plugins` and `info` show."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rlplug_cli.render.columns import drop_column, fit_words, total_width, widths_of
from rlplug_core import plugins
from rlplug_core.errors import plain
from rlplug_core.plugins import Group, read_index, remedy

#: The least width of the last column, and of every other column.
LAST_COLUMN_MIN = 24
COLUMN_MIN = 6
#: The most characters of a cell.
CELL_LIMIT = 1000


def rows(group: Group) -> list[dict[str, Any]]:
    """Return one dictionary per contribution of a group; imports no plugin."""
    return [row(record) for record in plugins.records() if record.group == group]


def row(record: plugins.Record) -> dict[str, Any]:
    """Return everything about one contribution: its index, or without one the metadata of its distribution."""
    index, reason = read_index(record) if record.status in ("ok", "shadowed") else (None, "")
    return {
        "id": record.id,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "indexed": index is not None,
        "index_reason": reason,
        "contract": index.contract if index else None,
        "summary": index.summary if index else record.summary,
        "actions": list(index.actions) if index else [],
        "target": record.target,
    }


def problem(record: plugins.Record) -> str:
    """Return why a plugin cannot be used, and what to type."""
    return f"{record} is {record.status}: {record.reason}; {remedy(record)}"


def table(
    header: Sequence[str],
    lines: Iterable[Sequence[str]],
    room: int | None = None,
    optional: Sequence[str] = (),
    wrapped: Collection[str] = (),
) -> str:
    """Return aligned columns in `room` characters; by default the width of the terminal, unlimited in a pipe.

    If they do not fit, the columns `optional` are left out in their order. Then the last column continues in the next
    line; if that is not enough, other columns are cut. With columns `wrapped`, these columns and titles continue in
    the next line before a column is left out, and nothing is cut; if that is not enough, each row becomes lines of its
    own.
    """
    all_rows = [tuple(header), *(tuple(plain(cell, CELL_LIMIT) for cell in line) for line in lines)]
    room = terminal_width() if room is None else room
    widths = widths_of(all_rows)
    if room and wrapped and total_width(widths) > room:
        return fit_words(all_rows, room, optional, wrapped)
    for title in optional:
        if room and total_width(widths) > room:
            all_rows = drop_column(all_rows, title)
            widths = widths_of(all_rows)
    if room and total_width(widths) > room:
        widths = fit(widths, room - 2 * (len(widths) - 1))
    return "\n".join(text for line in all_rows for text in _texts(line, widths))


def facts(lines: Iterable[tuple[str, str]], width: int) -> str:
    """Return titles in a column of `width` characters with text next to each; on a terminal the text wraps."""
    room = max(terminal_width() - width, LAST_COLUMN_MIN) if terminal_width() else CELL_LIMIT**2
    return "\n".join(
        textwrap.indent("\n".join(textwrap.wrap(text, room)), " " * width).replace(
            " " * width, title.ljust(width), 1
        )
        for title, text in lines
    )


def terminal_width() -> int:
    """Return the number of characters in a line of the terminal; 0 if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return 0
    import shutil  # with its compression modules, which output to a pipe does not need

    return shutil.get_terminal_size().columns


def fit(widths: Sequence[int], room: int) -> list[int]:
    """Return widths that add up to `room`: the last column becomes narrower first, then the widest one."""
    fitted = list(widths)
    fitted[-1] = max(min(fitted[-1], LAST_COLUMN_MIN), fitted[-1] - max(0, sum(fitted) - room))
    while sum(fitted) > room and max(fitted) > COLUMN_MIN:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _texts(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Return the lines of one row."""
    *cells, last = line
    wrapped = textwrap.wrap(last, widths[-1]) or [""]
    start = "".join(
        f"{shorten(cell, width).ljust(width)}  " for cell, width in zip(cells, widths, strict=False)
    )
    yield (start + wrapped[0]).rstrip()
    for text in wrapped[1:]:
        yield " " * len(start) + text


def shorten(text: str, width: int) -> str:
    """Shorten a string to at most `width` characters, with an ellipsis in its middle."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :] if tail else ''}"
