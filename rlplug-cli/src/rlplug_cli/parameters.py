"""Makes click parameters from an option schema, and option values with their origins from typed words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.arguments import PREFIXES, parse_value
from rlplug_core.config import (
    Option,
    flat,
    nearest,
    number_of_word,
    parse_text,
    plain_number,
    read_toml,
    schedule_text,
    values_in_range,
    whole_number,
)
from rlplug_core.errors import BadConfig, UsageError

#: The name of each schema type in the help.
TYPES = {
    "int": "INTEGER",
    "float": "NUMBER",
    "str": "TEXT",
    "bool": "yes|no",
    "ints": "INTEGER,…",
    "floats": "NUMBER,…",
    "strs": "TEXT,…",
    "repeated": "TEXT",
    "target": "FILE.py:NAME",
}
_PYTHON: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "target": str,
}
#: Types of options that can be typed several times.
REPEATABLE = ("repeated", "strs")
#: The last part of the option that names a function which makes a network.
FACTORY = "factory"

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.4


class Value(_ParamType):
    """The value of one option; rejects a wrong type or range before anything heavy is imported."""

    def __init__(
        self,
        option: Option,
        owner: str,
        complete: Callable[[], Iterable[str]],
    ) -> None:
        self.option = option
        self.owner = owner
        self.complete = complete
        self.name = type_text(option)

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> object:
        return parse_option(self.option, value, self.owner) if isinstance(value, str) else value

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,
        incomplete: str,
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        from rlplug_cli.completion import PATH, complete_names

        is_file = incomplete.startswith(PATH) or self.option.name == "dataset"
        if is_file and self.option.type in ("str", "target", *REPEATABLE):
            return [CompletionItem(incomplete, type="file")]
        return complete_names(self.option.choices or self.complete(), incomplete)


class PositiveInt(_ParamType):
    """An integer of at least 1 as people write it: 1000000, 1e6, 1M."""

    name = "integer"

    def convert(
        self,
        value: str | int,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        try:
            number = whole_number(value) if isinstance(value, str) else int(value)
        except ValueError:
            number = 0
        if number <= 0:
            self.fail(f"{value!r} is not an integer of at least 1", param, ctx)
        return number


class SchemaOption(click.Option):
    """A click option made from a schema option; if it is not typed, it is not passed on.

    `complete` returns words that shell completion offers for its value.
    """

    def __init__(
        self,
        option: Option,
        owner: str,
        complete: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.option = option
        flag = flag_of(option.name)
        boolean = option.type == "bool"
        kind = None if boolean else Value(option, owner, complete)
        super().__init__(
            [f"{flag}/--no-{flag[2:]}" if boolean else flag, variable(option.name)],
            type=kind,
            default=None,
            multiple=option.type in REPEATABLE,
            help=help_text(option),
            metavar=kind and kind.name,
        )

    def type_cast_value(self, ctx: click.Context, value: object) -> object:
        """Return the value; for an option that was typed several times, one flat list."""
        cast = super().type_cast_value(ctx, value)
        if self.multiple and cast is not None:
            return [text for texts in cast for text in texts]
        return cast


def type_text(option: Option) -> str:
    """Return the type of an option in the help."""
    words = "|".join(option.choices)
    return f"{words},…" if option.type == "choices" else words or TYPES[option.type]


def flag_of(name: str) -> str:
    """Return the flag of an option: `--num-envs` for `num_envs`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """Return a Python identifier for a dotted option name."""
    return "option_" + name.replace(".", "__")


def help_text(option: Option) -> str:
    """Return the help of an option with its default."""
    return f"{option.help}  [{value_text(option.default)}]".strip()


def value_text(value: object) -> str:
    """Return a value as a user types it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and value:
        return ",".join(map(str, value))
    return str(value) if value not in (None, [], (), "") else "none"


def short_value_text(value: object) -> str:
    """Return a value for a table: a float with four digits, others as a user types them."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def option_words(option: Option, value: Any) -> Iterator[str]:
    """Yield the words that set an option to a value."""
    flag = flag_of(option.name)
    if option.type == "bool":
        yield flag if value else f"--no-{flag[2:]}"
    elif option.type == "repeated" or (option.type == "strs" and value):
        for item in value or ["none"]:
            yield from (flag, item)
    elif isinstance(value, list | tuple):
        yield from (flag, ",".join(map(str, value)))
    else:
        yield from (flag, "none" if value is None else str(value))


def parse_option(option: Option, text: str, owner: str) -> Any:
    """Return the value of a typed text; a schedule in place of a number stays text.

    Raises:
        BadConfig: it has the wrong type, is out of range, is not one of the choices or not a schedule.
    """
    value = parse_text(option, text)
    expected = _unmet_requirement(option, value, f"{owner}: option '{option.name}'")
    if option.type in ("ints", "floats") and text.count("[") != text.count("]"):
        expected = f"numbers as in {value_text(option.default or [64, 64])}"
    if expected:
        raise BadConfig(
            f"{owner}: option '{option.name}': expected {expected}, got '{text}' "
            f"('rlplug info {owner}' shows its type and default)"
        )
    return value


def _unmet_requirement(option: Option, value: object, source: str) -> str:
    """Return the requirement that a value, or a value of a schedule, does not meet; "" if it is right.

    Raises:
        BadConfig: a wrong schedule; the message starts with `source`.
    """
    try:
        schedule = schedule_text(value) if option.type == "float" else None
    except BadConfig as error:
        raise BadConfig(f"{source}: {error}") from error
    values = values_in_range(option, schedule) if schedule else (value,)
    return next(filter(None, (_requirement(option, item) for item in values)), "")


def _requirement(option: Option, value: object) -> str:
    """Return the values that the option takes, for a message about a wrong one, or "" for a right one."""
    if value is None and option.optional:
        return ""
    if option.type in ("ints", "floats", "strs", "repeated"):
        return _item_requirement(option, value)
    if option.type in ("choice", "choices"):
        words = value if option.type == "choices" and isinstance(value, list) else [value]
        wrong = any(word not in option.choices for word in words)
        return f"one of {', '.join(option.choices)}" if wrong else ""
    wrong_bool = isinstance(value, bool) and option.type != "bool"
    if wrong_bool or not isinstance(value, _PYTHON[option.type]):
        number = "a number or a schedule such as linear(a,b)" if option.scheduled else "a number"
        nouns = {"int": "an integer", "float": number, "bool": "yes or no"}
        return nouns.get(option.type, "a string")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _range_requirement(option, value)
    return ""


def _item_requirement(option: Option, value: object) -> str:
    kind = _PYTHON.get(option.type[:-1], str)
    items = value if isinstance(value, list) else [None]
    if all(isinstance(item, kind) and not isinstance(item, bool) for item in items):
        return ""
    return "strings" if kind is str else f"numbers as in {value_text(option.default or [64, 64])}"


def _range_requirement(option: Option, value: float) -> str:
    low = option.minimum
    high = option.maximum
    if low is not None and not (value > low if option.open_minimum else value >= low):
        return f"a number {'above' if option.open_minimum else 'of at least'} {low:g}"
    if high is not None and not value <= high:
        return f"a number of at most {high:g}"
    try:
        return "" if math.isfinite(value) else "a finite number"
    except OverflowError:  # an integer of thousands of digits
        return "a smaller number"


def from_pairs(
    pairs: Sequence[str],
    options: Iterable[Option],
    owner: str,
) -> dict[str, object]:
    """Return the values of `--set name=value` pairs.

    Raises:
        UsageError: a pair has no `=`. BadConfig: an unknown name or a wrong value.
    """
    by_name = {option.name: option for option in options}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: write --set name=value")
        name = name.strip()
        if name.startswith(tuple(PREFIXES.values())):
            values[name] = parse_value(text)
            continue
        if name not in by_name:
            hint = nearest(name, by_name)
            raise BadConfig(
                f"{owner} has no option '{name}'{hint} ('rlplug info {owner}' lists them)"
            )
        values[name] = parse_option(by_name[name], text, owner)
    return values


def from_file(
    path: Path | None,
    options: Iterable[Option],
    owner: str,
) -> dict[str, object]:
    """Return the options of a `--config` file: TOML with dotted names or tables.

    Every value is checked, including those that something else overrides.

    Raises:
        UsageError: it cannot be read. BadConfig: an unknown name or a wrong value.
    """
    if path is None:
        return {}
    return check_values(path, flat_toml(path, "configuration"), options, owner)


def check_values(
    path: Path,
    values: dict[str, object],
    options: Iterable[Option],
    owner: str,
) -> dict[str, object]:
    """Return the options of a file, all checked.

    Raises:
        BadConfig: an unknown name or a wrong value.
    """
    by_name = {option.name: option for option in options}
    for name, value in values.items():
        if name.startswith(tuple(PREFIXES.values())):
            continue
        if name not in by_name:
            hint = nearest(name, by_name)
            raise BadConfig(
                f"{path}: {owner} has no option '{name}'{hint} ('rlplug info {owner}' lists them)"
            )
        check_value(path, by_name[name], value, owner)
    return values


def check_value(
    file: Path | str,
    option: Option,
    value: object,
    owner: str,
    name: str = "",
) -> None:
    """Reject a value of a file that an option does not take; `name` is its name in the file."""
    name = name or option.name
    text = value if isinstance(value, str) else None
    if text == "none" and option.optional:  # TOML has no null
        return
    plain_value = number_of_word(option.name, plain_number(value, option.type))
    expected = _unmet_requirement(option, plain_value, f"{file}: '{name}'")
    if expected and text is not None and option.type in ("ints", "floats"):
        expected = "a list of numbers without quotes, as in [64, 64]"
    if expected:
        raise BadConfig(
            f"{file}: '{name}': expected {expected}, got {value!r} "
            f"('rlplug info {owner}' shows its type and default)"
        )


def flat_toml(path: Path, noun: str) -> dict[str, object]:
    """Return the options of a TOML file by dotted name; errors as of `read_tables`."""
    return flat(read_tables(path, noun))


def read_tables(path: Path, noun: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return read_toml(path)
    except OSError as error:
        raise UsageError(f"the {noun} file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the {noun} file {path} is not TOML: {error}") from error


def network_prefixes(
    options: Iterable[Option],
    flag: str = "--net",
) -> list[str]:
    """Return the prefixes of the options that `--net` or `--critic-net` sets: `net.`, `critic_net.`.

    `--net` also sets those of a critic that has no defaults by `net`.
    """
    names = {option.name: option for option in options}
    prefixes = [name.removesuffix(FACTORY) for name in names if name.endswith(f"net.{FACTORY}")]
    if flag == "--critic-net":
        return [prefix for prefix in prefixes if prefix == "critic_net."]
    return [prefix for prefix in prefixes if f"{prefix}shared" in names]
