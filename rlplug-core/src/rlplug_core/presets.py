"""Presets: option values that suit an algorithm on an environment, in `presets/<id>.toml` beside a plugin's top level.

    [default]
    lr = 7e-4
    ["ALE/*"]
    net.hidden = [512]
    ["ALE/Pong-v5"]
    total_steps = 10_000_000

All tables that fit an environment id apply, and for each option the most specific one wins: an exact id, then patterns
by the number of their literal characters, then `default`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rlplug_core.errors import PluginError
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.index import package_root
from rlplug_core.plugins.loading import is_target
from rlplug_core.plugins.names import find


def preset(algorithm: str | type, env_id: str) -> dict[str, Any]:
    """The preset options of an algorithm (by name or class) for an environment, as dotted names to values.

    Raises:
        PluginError: the preset file cannot be read.
    """
    path = _file(algorithm)
    if path is None or not path.is_file():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PluginError(f"the preset file {path} cannot be read: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise PluginError(f"the preset file {path}: '{name}' stands outside a table; put it under [default]")
    values: dict[str, Any] = {}
    for name in sorted((name for name in tables if _fits(name, env_id)), key=lambda name: _specificity(name, env_id)):
        values.update(flat(tables[name]))
    return values


def resolve(
    algorithm: str | type, env_id: str, options: Mapping[str, Any], origins: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The given options over the preset, and where each value is from; `origins` says it for the given ones."""
    below, given = preset(algorithm, env_id), flat(options)
    origin = dict.fromkeys(below, "preset") | {name: (origins or {}).get(name, "option") for name in given}
    return below | given, origin


def merge(*layers: tuple[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Layers of options, each with the name of its origin, from the strongest to the weakest, as one mapping."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in reversed(layers):
        values.update(flat(layer))
        origins.update(dict.fromkeys(flat(layer), origin))
    return values, origins


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def _file(algorithm: str | type) -> Path | None:
    if isinstance(algorithm, str):
        if is_target(algorithm):
            return None
        record = find("algorithms", algorithm)
    else:
        target = f"{algorithm.__module__}:{algorithm.__qualname__}"
        found = [one for one in records() if (one.group, one.target) == ("algorithms", target)]
        if not found:
            return None
        record = found[0]
    root = package_root(record.top_level)
    return None if root is None else root / "presets" / f"{record.id}.toml"


def _fits(name: str, env_id: str) -> bool:
    return name == "default" or fnmatchcase(env_id, name)


def _specificity(name: str, env_id: str) -> tuple[bool, bool, int]:
    return name == env_id, name != "default", sum(char not in "*?[]" for char in name)
