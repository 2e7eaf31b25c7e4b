"""Presets: good option values of an algorithm for an environment, in `presets/<id>.toml` of a plugin's top level.

    extends = "dqn"
    summary = "Double DQN (van Hasselt et al., 2016, arXiv:1509.06461)"
    [default]
    double = true
    [kind.continuous]
    net.hidden = [256]
    ["ALE/*"]
    net.hidden = [512]
    ["ALE/Pong-v5"]
    total_timesteps = 10_000_000

All tables that match an environment id apply, and for each option the most specific one wins: an exact id, then
patterns by the number of their literal characters, then `default`. They override the presets that they extend, so a
variant needs only an entry point with an existing class, and presets. The help shows `default`. A table of a kind
(`pixels`, `continuous`, `discrete`, `multi-agent`) overrides `default` for an environment that no pattern matches.

A provider of environments may have such a file, too, with options for its environments under any algorithm, such as
wrappers. The presets of algorithms override it. Its package may also have `presets/ppo.toml` with tables for its own
environments under another package's `ppo`; if both name an environment, it overrides the file of that package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_string import is_target
from rlplug_core.config.schema import flat
from rlplug_core.errors import warn
from rlplug_core.plugins.discovery import usable_records
from rlplug_core.plugins.names import env_parts, find
from rlplug_core.plugins.preset_files import Presets, chain, read

if TYPE_CHECKING:
    from rlplug_core.config.schema import Option


def preset(algorithm: str, env_id: str, kind: str = "") -> dict[str, object]:
    """Return the preset options of an algorithm for an environment, by dotted name.

    Args:
        algorithm: its id; a class or a file has no presets.
        env_id: the environment.
        kind: the kind of environment; its tables override the defaults if no other table matches the id.

    Raises:
        UsageError: the algorithm does not exist.
        PluginError: a preset file cannot be read, or extends an unknown algorithm.
    """
    values: dict[str, object] = {}
    env_id = env_parts(env_id)[1]
    kind = "" if is_known(algorithm, env_id) else kind
    extended = [] if is_target(algorithm) else chain(find("algorithms", algorithm))
    for presets in [*_provider_presets(), *reversed(extended)]:
        values.update(_matching_values(presets, env_id, kind))
    for tables in _for_algorithm(algorithm):
        values.update(_matching_values(Presets(None, tables), env_id, ""))
    return values


def _for_algorithm(algorithm: str) -> list[dict[str, dict[str, object]]]:
    """Return the tables that packages of environments have for an algorithm of another package.

    Raises:
        PluginError: a file cannot be read.
    """
    if is_target(algorithm):
        return []
    record = find("algorithms", algorithm)
    providers = {
        provider.top_level: provider
        for provider in usable_records("envs")
        if provider.top_level != record.top_level
    }
    tables: list[dict[str, dict[str, object]]] = []
    for presets in (read(replace(provider, id=record.id)) for provider in providers.values()):
        general = {"default", "*"} & presets.tables.keys() | {
            f"kind.{kind}" for kind in presets.kinds
        }
        if general:
            warn(
                f"the preset file {presets.path} is left out: '{min(general)}' applies to all environments, and only "
                f"{record.distribution} may set these for {record.id}; name your own environments"
            )
        else:
            tables.append(presets.tables)
    return tables


def provider_preset(env_id: str) -> dict[str, Any]:
    """Return the options that providers of environments set for an environment under any algorithm.

    Raises:
        PluginError: a preset file cannot be read.
    """
    values: dict[str, object] = {}
    for presets in _provider_presets():
        values.update(_matching_values(presets, env_parts(env_id)[1], ""))
    return values


def _provider_presets() -> list[Presets]:
    return [read(record) for record in usable_records("envs")]


def _matching_values(
    presets: Presets,
    env_id: str,
    kind: str,
) -> dict[str, object]:
    """Return the values that the tables of one file set for an environment."""
    values: dict[str, object] = {}
    for table in (presets.tables.get("default", {}), presets.kinds.get(kind, {})):
        values.update(flat(table))
    matching = (name for name in presets.tables if name != "default" and fnmatchcase(env_id, name))
    # The most specific name is the last: the id itself, or the pattern with the most letters.
    letters = {name: sum(char not in "*?[]" for char in name) for name in matching}
    for name in sorted(letters, key=lambda name: (name == env_id, letters[name])):
        values.update(flat(presets.tables[name]))
    return values


def is_known(algorithm: str, env_id: str) -> bool:
    """Return whether a table of an algorithm's presets names an environment."""
    env_id = env_parts(env_id)[1]
    tables = (
        []
        if is_target(algorithm)
        else [presets.tables for presets in chain(find("algorithms", algorithm))]
        + _for_algorithm(algorithm)
    )
    return any(
        name != "default" and fnmatchcase(env_id, name) for table in tables for name in table
    )


def usual(algorithm: str, options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options with their defaults in every environment: those of presets override the configuration's."""
    values = preset(algorithm, "")
    return tuple(
        replace(option, default=values.get(option.name, option.default)) for option in options
    )


def merge(*layers: tuple[str, Mapping[str, object]]) -> tuple[dict[str, object], dict[str, str]]:
    """Merge layers of options, each with the name of its origin; earlier layers override later ones."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for origin, layer in reversed(layers):
        layer_values = flat(layer)
        values.update(layer_values)
        origins.update(dict.fromkeys(layer_values, origin))
    return values, origins
