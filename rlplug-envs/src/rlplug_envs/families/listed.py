"""The base of providers with a file of families next to them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Self


class Listed:
    """A provider's arguments, and its ids, those in the file `families/<listed>.toml`."""

    listed: ClassVar[str]

    def __init__(self, arguments: Mapping[str, object] | None = None) -> None:
        self.arguments = dict(arguments or {})

    def with_arguments(self, arguments: Mapping[str, object]) -> Self:
        """Return the same provider with other arguments."""
        return type(self)(arguments)

    def ids(self) -> Iterable[str]:
        """Return the ids that are listed; there may be more."""
        families = tomllib.loads(Path(__file__).with_name(f"{self.listed}.toml").read_text("utf-8"))
        return sorted(id for family in families.values() for id in family["ids"])
