"""Columns of a table: how wide they are, and how they fit a narrow terminal without a word being cut."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest


def fit_words(
    lines: list[tuple[str, ...]],
    room: int,
    optional: Sequence[str],
    wrapped: Collection[str],
) -> str:
    """Return columns without broken words, leaving out as few of `optional` as possible; or each row as a list."""
    remaining = lines
    for title in (None, *optional):
        remaining = remaining if title is None else drop_column(remaining, title)
        least = [_least_width(column, wrapped) for column in zip(*remaining, strict=True)]
        widths = widths_of(remaining)
        if total_width(least) <= room:
            while total_width(widths) > room:
                widest = max((width, n) for n, width in enumerate(widths) if width > least[n])[1]
                widths[widest] -= 1
            return "\n".join(text for line in remaining for text in _wrap(line, widths))
    return "\n\n".join("\n".join(_list_cells(lines[0], row, room)) for row in lines[1:])


def _least_width(column: Sequence[str], wrapped: Collection[str]) -> int:
    """Return the least width of a column without a broken word; only `wrapped` columns may break cells."""
    title, *cells = column
    words = title.split()
    for cell in cells:
        words += cell.split() if title in wrapped else [cell]
    return max(map(len, words))


def _wrap(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Return the lines of a row; each cell may wrap."""
    cells = [
        textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(line, widths, strict=True)
    ]
    for texts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(
            text.ljust(width) for text, width in zip(texts, widths, strict=True)
        ).rstrip()


def _list_cells(
    header: Sequence[str],
    row: Sequence[str],
    room: int,
) -> Iterator[str]:
    """Return one row as a list: lines with a column's title and its cell."""
    for title, cell in zip(header, row, strict=True):
        yield textwrap.fill(
            f"{title}: {cell}", room, subsequent_indent="  ", break_on_hyphens=False
        )


def drop_column(
    lines: Sequence[tuple[str, ...]],
    title: str,
) -> list[tuple[str, ...]]:
    """Return the lines without a column."""
    column = lines[0].index(title)
    return [line[:column] + line[column + 1 :] for line in lines]


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def total_width(widths: Sequence[int]) -> int:
    """Return the width of a line with two spaces between columns."""
    return sum(widths) + 2 * (len(widths) - 1)
