"""All options of a run as TOML, each with where its value is from; it can be read again with `--config`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rlplug_core.config.schema import Option

#: What an origin is called in a comment.
WORDS = {
    "option": "typed",
    "set": "--set",
    "net": "--net",
    "config": "--config",
    "preset": "preset",
}


def config_text(
    values: Mapping[str, object], origins: Mapping[str, str], options: Iterable[Option]
) -> str:
    """A line for each option, those that are not set by anyone with their defaults.

    An option that is none has a line of comment: TOML has no null, and `"none"` says it.
    """
    names = [one.name for one in options]
    rest = [(json.dumps(name), values[name], origins[name]) for name in values if name not in names]
    lines = [
        (one.name, values.get(one.name, one.default), origins.get(one.name, "default"))
        for one in options
    ]
    lines += rest  # arguments of the environment, whose names no schema knows
    texts = [f"{name} = {toml(value)}" for name, value, _ in lines]
    width = max(map(len, texts))
    words = [WORDS.get(origin, origin) for _, _, origin in lines]
    return "\n".join(f"{text:<{width}}  # {word}" for text, word in zip(texts, words, strict=True))


def toml(value: object) -> str:
    """A value as TOML writes it in one line; none is a text."""
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(float(value))  # JSON writes `Infinity` for inf
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
