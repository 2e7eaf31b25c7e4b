"""`--env.NAME VALUE`: keyword arguments of an environment; no schema lists their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from rlplug_cli.render.config import toml
from rlplug_core.errors import UsageError

#: The prefixes of typed words, and of the option names that they become.
PREFIXES = {"--env.": "env.", "--eval-env.": "eval_env."}
_KEY = "rlplug_cli.arguments"


class TakesArguments(click.Command):
    """A command that accepts arguments of an environment anywhere in its line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, ctx.meta[_KEY] = split_arguments(args)
        return super().parse_args(ctx, args)


def environment_arguments(context: click.Context) -> dict[str, object]:
    """Return the typed arguments by dotted option name, such as `env.size`."""
    return context.meta.get(_KEY, {})


def single_env_arguments(context: click.Context) -> dict[str, object] | None:
    """Return the arguments of a command with one environment by their own names, or None without any.

    Raises:
        UsageError: some are for the evaluation environment.
    """
    arguments = environment_arguments(context)
    eval_arguments = [name for name in arguments if not name.startswith("env.")]
    if eval_arguments:
        flag = eval_arguments[0].replace("_", "-", 1)
        raise UsageError(f"--{flag}: this command has one environment; write --env.NAME VALUE")
    return {name.removeprefix("env."): value for name, value in arguments.items()} or None


def split_arguments(words: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """Return the words without the arguments of environments, and these arguments by dotted option name.

    Raises:
        UsageError: a value is missing.
    """
    other_words: list[str] = []
    arguments: dict[str, object] = {}
    remaining = iter(words)
    for word in remaining:
        flag, equals, text = word.partition("=")
        name = option_name(flag)
        if word == "--":
            return [*other_words, word, *remaining], arguments
        if not name:
            other_words.append(word)
            continue
        if name.endswith("."):
            raise UsageError(f"{flag}: write NAME VALUE after the dot")
        value = text if equals else next(remaining, None)
        if value is None:
            raise UsageError(f"{flag}: write a value")
        arguments[name] = parse_value(value)
    return other_words, arguments


def option_name(flag: str) -> str:
    """Return the option name of a flag: `env.lane_count` for `--env.lane-count`, "" for any other word."""
    for prefix, option in PREFIXES.items():
        if flag.replace("_", "-").startswith(prefix):
            first, dot, tail = flag[len(prefix) :].partition(".")
            return option + first.replace("-", "_") + dot + tail
    return ""


def parse_value(text: str) -> object:
    """Return a value written as in TOML, None for `none`, and the text itself if it is not TOML."""
    import tomllib  # 5 ms that completion does not need

    if text in ("none", "None", "null"):
        return None
    literal = text.lower() if text in ("True", "False") else text
    try:
        value = tomllib.loads(f"x = {literal}")["x"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str | list | dict) else text


def argument_words(values: Mapping[str, object]) -> Iterator[str]:
    """Yield the words that give these arguments again."""
    for name, value in values.items():
        option, _, key = name.partition(".")
        text = "none" if value is None else toml(value)
        yield f"--{option.replace('_', '-')}.{key}={text}"
