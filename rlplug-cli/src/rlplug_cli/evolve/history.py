"""The history of a population: `population.json`, with the scores and exchanges after every chunk.

An exchange is decided once and saved before anything changes, so a kill at any moment changes no decision.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlplug_cli.sweep.manifest import read_sealed, write_sealed
from rlplug_core.errors import Untrusted, UsageError

NAME = "population.json"
FORMAT = 1


@dataclass(frozen=True)
class Change:
    """The change of a member: the member that it copies (its own number: none), and new option values."""

    source: int
    checkpoint: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """The end of a chunk.

    Attributes:
        step: its env step.
        scores: the members' mean returns there; None for a member that failed.
        changes: by the number of the member, as text.
        rule: the state of the rule after the exchange; None if it has none.
        applied: whether every run has its change.
    """

    step: int
    scores: tuple[float | None, ...]
    changes: dict[str, Change]
    rule: Any = None
    applied: bool = False


@dataclass(frozen=True)
class History:
    """The content of `population.json`: the search, the first option values of the members, and the chunks so far."""

    search: str
    first: tuple[dict[str, Any], ...]
    chunks: tuple[Chunk, ...] = field(default_factory=tuple)

    @classmethod
    def read(cls, directory: Path, search: str) -> History | None:
        """Return the history of a directory; None if there is none.

        Raises:
            RlplugError: the file cannot be read. Untrusted: this account did not write it.
            UsageError: it belongs to another search.
        """
        path = directory / NAME
        if not os.path.lexists(path):
            return None
        history, is_ours = read_sealed(path, cls, FORMAT)
        if not is_ours:
            raise Untrusted(
                f"{path} was not written by this account; choose another --name, or move the directory away"
            )
        if history.search != search:
            raise UsageError(f"{directory} was started with other options; choose another --name")
        return history

    def write(self, directory: Path) -> None:
        """Save durably: a reader sees the old history or the new one."""
        write_sealed(directory / NAME, self, FORMAT)

    def with_chunk(self, chunk: Chunk) -> History:
        """Return the history with a chunk added, or with the last one replaced if it ends at the same step."""
        earlier = self.chunks
        if earlier and earlier[-1].step == chunk.step:
            earlier = earlier[:-1]
        return replace(self, chunks=(*earlier, chunk))

    def options(self, member: int) -> dict[str, Any]:
        """Return the current option values of a member."""
        values = dict(self.first[member])
        for chunk in self.chunks:
            change = chunk.changes.get(str(member))
            values |= change.options if change is not None else {}
        return values
