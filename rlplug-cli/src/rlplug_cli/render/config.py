"""All options of a run as TOML, each with where its value is from; it can be read again with `--config`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rlplug_core.config.schema import Option

#: What an origin is called in a comment.
WORDS = {"option": "typed", "set": "--set", "net": "--net", "config": "--config", "preset": "preset"}


def written_out(values: Mapping[str, object], origins: Mapping[str, str], options: Iterable[Option]) -> str:
    """A line for each option, those that are not set by anyone with their defaults.

    An option that is none has a line of comment: TOML has no null, and `"none"` says it.
    """
    lines = [(one.name, values.get(one.name, one.default), origins.get(one.name, "default")) for one in options]
    texts = [f"{name} = {_toml(value)}" for name, value, _ in lines]
    width = max(map(len, texts))
    words = [WORDS.get(origin, origin) for _, _, origin in lines]
    return "\n".join(f"{text:<{width}}  # {word}" for text, word in zip(texts, words, strict=True))


def _toml(value: object) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
