"""Collects the options that a user set from the command line, `--set`, `--net` and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rlplug_cli.arguments import PREFIXES
from rlplug_cli.parameters import (
    FACTORY,
    check_value,
    flat_toml,
    from_file,
    from_pairs,
    network_prefixes,
    variable,
)
from rlplug_core.config import Option, nearest
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.plugins import merge_layers


def from_network(
    word: str | None,
    options: Sequence[Option],
    owner: str,
    flag: str = "--net",
) -> dict[str, object]:
    """Return the options that `--net` or `--critic-net` sets: those of a TOML file or a factory.

    Raises:
        UsageError: it is neither, or cannot be read. BadConfig: the file sets an unknown option or a wrong value.
    """
    if word is None:
        return {}
    if word.endswith(".toml"):
        values = flat_toml(Path(word), "network")
    elif ":" in word and not word.endswith(".py"):
        values = {FACTORY: word}
    else:
        raise UsageError(
            f"{flag} {word}: it does not name a function; write {flag} ./my_net.py:make or {flag} my_net.toml"
        )
    result: dict[str, object] = {}
    for prefix in network_prefixes(options, flag):
        network_options = [option for option in options if option.name.startswith(prefix)]
        by_name = {option.name.removeprefix(prefix): option for option in network_options}
        for name, value in values.items():
            if name not in by_name:
                hint = nearest(name, by_name)
                raise BadConfig(
                    f"{word}: a network has no '{name}'{hint} ('rlplug info {owner}' lists all as {prefix}NAME)"
                )
            check_value(word, by_name[name], value, owner, name)
            result[prefix + name] = value
    return result


def collect(
    typed: Mapping[str, object],
    pairs: Sequence[str],
    file: Path | None,
    options: Sequence[Option],
    owner: str,
    net: str | None = None,
    critic_net: str | None = None,
    project: Mapping[str, object] = {},
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the values that the user set, and their origins: options override `--set`, `--net`, then the files.

    Presets and defaults come later.
    """
    arguments = tuple(PREFIXES.values())
    values = {name: value for name, value in typed.items() if name.startswith(arguments)}
    for option in options:
        if variable(option.name) in typed:
            values[option.name] = typed[variable(option.name)]
    layers = [
        ("option", values),
        ("set", from_pairs(pairs, options, owner)),
        ("critic-net", from_network(critic_net, options, owner, "--critic-net")),
        ("net", from_network(net, options, owner)),
        ("config", from_file(file, options, owner)),
        ("project", project),
    ]
    return merge_layers(*layers)
