"""What `list`, `plugins` and `info` say about contributions, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlplug_core import plugins
from rlplug_core.plugins import index
from rlplug_core.plugins.records import Group


def rows(group: Group) -> list[dict[str, Any]]:
    """One dictionary per contribution of a group; imports no plugin."""
    return [row(record) for record in plugins.records() if record.group == group]


def row(record: plugins.Record) -> dict[str, Any]:
    """What is known about one contribution: its index, or without one the metadata of its distribution."""
    found, why = index.read(record) if record.status in ("ok", "shadowed") else (None, "")
    return {
        "id": record.id,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "indexed": found is not None,
        "index_reason": why,
        "summary": found.summary if found else record.summary,
        "actions": list(found.actions) if found else [],
        "target": record.target,
    }


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Aligned columns; the last one is as long as it is."""
    everything = [tuple(header), *(tuple(line) for line in lines)]
    widths = [max(len(line[column]) for line in everything) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in everything
    )
