"""Writes all options of a run as TOML with the origin of each value; `--config` can read it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rlplug_core.config import Option

if TYPE_CHECKING:
    from rlplug_core.plugins import RunRequest

#: The name of each origin in a comment.
WORDS = {
    "option": "typed",
    "set": "--set",
    "net": "--net",
    "critic-net": "--critic-net",
    "config": "--config",
    "preset": "preset",
}


def config_text(request: RunRequest, options: Iterable[Option]) -> str:
    """Return a line for each option; unset options have their defaults.

    TOML has no null, so an option without a value is `"none"`.
    """
    values = request.values
    origins = request.origins
    names = [option.name for option in options]
    env_arguments = [
        (json.dumps(name), values[name], origins[name]) for name in values if name not in names
    ]
    lines = [
        (option.name, values.get(option.name, option.default), origins.get(option.name, "default"))
        for option in options
    ]
    lines += env_arguments  # arguments of the environment, which no schema lists
    texts = [f"{name} = {toml(value)}" for name, value, _ in lines]
    width = max(map(len, texts))
    words = [WORDS.get(origin, origin) for _, _, origin in lines]
    return "\n".join(f"{text:<{width}}  # {word}" for text, word in zip(texts, words, strict=True))


def toml(value: object) -> str:
    """Return a value as one line of TOML; None is a string."""
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(float(value))  # JSON writes `Infinity` for inf
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_config(options: Mapping[str, object], comment: str) -> str:
    """Return a file for `--config`."""
    return f"# {comment}\n{_lines(options)}"


def as_preset(options: Mapping[str, object], env: str, comment: str) -> str:
    """Return a table for `presets/<algorithm>.toml`."""
    return f"# {comment}\n[{toml(env)}]\n{_lines(options)}"


def _lines(options: Mapping[str, object]) -> str:
    return "".join(f"{name} = {toml(value)}\n" for name, value in options.items())
