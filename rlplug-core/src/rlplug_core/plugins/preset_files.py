"""Preset files, `presets/<id>.toml` in an algorithm's package, and the files that they extend; imports no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlplug_core.config.files import from_toml
from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.plugins.index import package_root
from rlplug_core.plugins.names import find
from rlplug_core.plugins.records import Record

#: The kinds of environments that presets may have tables for, besides ids.
KINDS = ("pixels", "continuous", "discrete", "multi-agent")


@dataclass(frozen=True)
class Presets:
    """One preset file, or the absence of one.

    Attributes:
        tables: option values by pattern of environment ids.
        kinds: option values by kind of environments.
        extends: the algorithm with the presets that these extend, or an empty string.
        summary: a description of the algorithm with these presets, if the class has another one; or an empty string.
    """

    path: Path | None
    tables: dict[str, dict[str, object]]
    extends: str = ""
    summary: str = ""
    kinds: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, dict[str, Any]]:
        """Return every table by its heading."""
        return {**{f"kind.{name}": table for name, table in self.kinds.items()}, **self.tables}


def read(record: Record) -> Presets:
    """Return the preset file of an algorithm.

    Raises:
        PluginError: it cannot be read.
    """
    root = package_root(record.top_level)
    path = None if root is None else root / "presets" / f"{record.id}.toml"
    if path is None or not path.is_file():
        return Presets(None, {})
    try:
        content = from_toml(path)
    except (OSError, ValueError) as error:
        raise PluginError(f"{record}: the preset file {path} cannot be read: {error}") from error
    texts = {name: content.pop(name, "") for name in ("extends", "summary")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise PluginError(
                f"{record}: the preset file {path}: '{name}' is {value!r}; it must be a string"
            )
    _check_tables(content, f"{record}: the preset file {path}")
    kinds = content.pop("kind", {})
    return Presets(path, content, **texts, kinds=kinds)


def _check_tables(content: Mapping[str, object], where: str) -> None:
    """Raise PluginError for an option outside a table, or a table for an unknown kind."""
    for name, table in content.items():
        if not isinstance(table, dict):
            raise PluginError(f"{where}: '{name}' is not in a table; put it under [default]")
    kinds = content.get("kind", {})
    assert isinstance(kinds, dict)
    for name, table in kinds.items():
        if name not in KINDS or not isinstance(table, dict):
            raise PluginError(
                f"{where}: 'kind.{name}' is not a table of a kind{did_you_mean(name, KINDS)} "
                f"({', '.join(KINDS)})"
            )


def chain(record: Record) -> list[Presets]:
    """Return the presets of an algorithm, then the presets that they extend, and so on.

    Raises:
        PluginError: a file cannot be read, or it extends an algorithm that is not installed, or itself in a cycle.
    """
    presets = [read(record)]
    ids = [record.full_name]
    while presets[-1].extends:
        path = presets[-1].path
        name = presets[-1].extends
        try:
            base = find("algorithms", name)
        except UsageError as error:
            raise PluginError(f"the preset file {path} extends '{name}': {error}") from error
        if base.full_name in ids:
            cycle = " extends ".join(
                f"'{id}'" for id in [*ids[ids.index(base.full_name) :], base.full_name]
            )
            raise PluginError(
                f"the preset file {path} extends '{name}' in a cycle: {cycle}; remove one 'extends'"
            )
        ids.append(base.full_name)
        presets.append(read(base))
    return presets
