"""The best options as TOML: for `--config`, or as a table of a preset."""

from __future__ import annotations

from collections.abc import Mapping

from rlplug_cli.render.config import toml


def as_config(options: Mapping[str, object], comment: str) -> str:
    """Return a file for `--config`."""
    return f"# {comment}\n{_lines(options)}"


def as_preset(options: Mapping[str, object], env: str, comment: str) -> str:
    """Return a table for `presets/<algorithm>.toml`."""
    return f"# {comment}\n[{toml(env)}]\n{_lines(options)}"


def _lines(options: Mapping[str, object]) -> str:
    return "".join(f"{name} = {toml(value)}\n" for name, value in options.items())
