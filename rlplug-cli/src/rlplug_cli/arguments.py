"""`--env.NAME VALUE`: keyword arguments of an environment, whose names no schema knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from rlplug_cli.render.config import toml
from rlplug_core.errors import UsageError

#: How the words begin, and the options that they become.
PREFIXES = {"--env.": "env.", "--eval-env.": "eval_env."}
_KEY = "rlplug_cli.arguments"


class TakesArguments(click.Command):
    """A command in whose line arguments of an environment may stand anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, ctx.meta[_KEY] = taken(args)
        return super().parse_args(ctx, args)


def typed(context: click.Context) -> dict[str, object]:
    """The arguments that were typed, by dotted option name: `env.size`."""
    found: dict[str, object] = context.meta.get(_KEY, {})
    return found


def of_environment(context: click.Context) -> dict[str, object] | None:
    """The arguments of a command that has one environment, by their own names; None where there are none.

    Raises:
        UsageError: some are of an environment for evaluation.
    """
    found = typed(context)
    if wrong := [name for name in found if not name.startswith("env.")]:
        raise UsageError(
            f"--{wrong[0].replace('_', '-', 1)}: here there is one environment; write --env.NAME VALUE"
        )
    return {name.removeprefix("env."): value for name, value in found.items()} or None


def taken(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words without the arguments of environments, and these by dotted option name.

    Raises:
        UsageError: a value is missing.
    """
    rest: list[str] = []
    found: dict[str, object] = {}
    left = iter(words)
    for word in left:
        flag, equals, text = word.partition("=")
        name = option_name(flag)
        if word == "--":
            return [*rest, word, *left], found
        if not name:
            rest.append(word)
            continue
        value = text if equals else next(left, None)
        if value is None or name.endswith("."):
            raise UsageError(
                f"{flag}: write {'NAME VALUE behind the dot' if name.endswith('.') else 'a value'}"
            )
        found[name] = parsed(value)
    return rest, found


def option_name(flag: str) -> str:
    """`--env.lane-count` is `env.lane_count`; empty for any other word."""
    for prefix, option in PREFIXES.items():
        if flag.replace("_", "-").startswith(prefix):
            first, dot, rest = flag[len(prefix) :].partition(".")
            return option + first.replace("-", "_") + dot + rest
    return ""


def parsed(text: str) -> Any:
    """A value as TOML writes it, or None for `none`; what is no TOML is a text."""
    import tomllib  # 5 ms, which completion has no need of

    if text in ("none", "None", "null"):
        return None
    try:
        value = tomllib.loads(f"x = {text.lower() if text in ('True', 'False') else text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str | list | dict) else text


def spelled(values: Mapping[str, object]) -> Iterator[str]:
    """The words that say arguments again."""
    for name, value in values.items():
        option, _, rest = name.partition(".")
        yield f"--{option.replace('_', '-')}.{rest}={'none' if value is None else toml(value)}"
