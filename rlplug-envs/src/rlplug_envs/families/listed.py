"""Lists ids of environments from files, and the base of providers with such a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Self


def listed_ids(file: str) -> list[str]:
    """Return the ids in `families/<file>.toml`, sorted; a package may have more."""
    families = tomllib.loads(Path(__file__).with_name(f"{file}.toml").read_text("utf-8"))
    return sorted(id for family in families.values() for id in family["ids"])


class ListedProvider:
    """A provider with arguments; `rlplug list envs` shows the ids in the file `families/<listed>.toml`."""

    listed: ClassVar[str]

    def __init__(self, arguments: Mapping[str, object] | None = None) -> None:
        self.arguments = dict(arguments or {})

    def with_arguments(self, arguments: Mapping[str, object]) -> Self:
        """Return the same provider with other arguments."""
        return type(self)(arguments)

    def ids(self) -> Iterable[str]:
        return listed_ids(self.listed)
