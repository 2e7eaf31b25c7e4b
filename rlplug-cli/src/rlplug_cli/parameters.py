"""From an option schema to click parameters, and from what was typed to option values and their origins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.arguments import PREFIXES
from rlplug_cli.arguments import parsed as free
from rlplug_core.config.files import from_toml
from rlplug_core.config.numbers import plain, whole
from rlplug_core.config.parse import meant, parse, tested
from rlplug_core.config.schedules import written
from rlplug_core.config.schema import Option, flat
from rlplug_core.config.synonyms import nearest
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.plugins.presets import merge

#: How the help writes each type of a schema.
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
#: The last part of the option that names a network of a user's own.
FACTORY = "factory"

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.4


class Value(_ParamType):
    """The value of one option; refuses a wrong type or range before anything heavy is imported."""

    def __init__(self, option: Option, owner: str, complete: Callable[[], Iterable[str]]) -> None:
        self.option = option
        self.owner = owner
        self.complete = complete
        self.name = "|".join(option.choices) or TYPES[option.type]

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return parsed(self.option, value, self.owner) if isinstance(value, str) else value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        words = self.option.choices or self.complete()
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class Whole(_ParamType):
    """A whole number of at least 1 as people write it: 1000000, 1e6, 1M."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = whole(value) if isinstance(value, str) else int(value)
        except ValueError:
            number = 0
        return (
            number
            if number > 0
            else self.fail(f"{value!r} is no whole number of at least 1", param, ctx)
        )


#: Types of options that may be typed several times.
SEVERAL = ("repeated", "strs")


class SchemaOption(click.Option):
    """A click option that remembers which schema option it stands for; unset, it is not passed on.

    `complete` gives the words that its value may begin with.
    """

    def __init__(
        self, option: Option, owner: str, complete: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.option = option
        yes = flag(option.name)
        names = [f"{yes}/--no-{yes[2:]}" if option.type == "bool" else yes, variable(option.name)]
        kind = None if option.type == "bool" else Value(option, owner, complete)
        several = option.type in SEVERAL
        super().__init__(
            names,
            type=kind,
            default=None,
            multiple=several,
            help=described(option),
            metavar=kind and kind.name,
        )

    def type_cast_value(self, ctx: click.Context, value: object) -> object:
        """The values of an option that is typed several times, one after the other."""
        cast = super().type_cast_value(ctx, value)
        return (
            [text for texts in cast for text in texts]
            if self.multiple and cast is not None
            else cast
        )


def flag(name: str) -> str:
    """Return an option as the command line spells it: `num_envs` is `--num-envs`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """A Python identifier for a dotted option name."""
    return "option_" + name.replace(".", "__")


def described(option: Option) -> str:
    """The help of an option with its default."""
    return f"{option.help}  [{shown(option.default)}]".strip()


def shown(value: object) -> str:
    """A value as one would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and value:
        return ",".join(map(str, value))
    return str(value) if value not in (None, [], (), "") else "none"


def spelled(option: Option, value: Any) -> Iterator[str]:
    """The words that set an option to a value."""
    word = flag(option.name)
    if option.type == "bool":
        yield word if value else f"--no-{word[2:]}"
    elif option.type == "repeated":
        for one in value or ["none"]:
            yield from (word, one)
    else:
        yield word
        yield (
            ",".join(map(str, value))
            if isinstance(value, list | tuple)
            else "none"
            if value is None
            else str(value)
        )


def parsed(option: Option, text: str, owner: str) -> Any:
    """The value of what was typed for an option; a schedule in place of a number stays text.

    Raises:
        BadConfig: it has the wrong type, is out of range, none of the choices or no schedule.
    """
    value = parse(option, text)
    try:
        schedule = written(value) if option.type == "float" else None
    except BadConfig as error:
        raise BadConfig(f"{owner}: option '{option.name}': {error}") from error
    for one in tested(option, schedule) if schedule else (value,):
        if wanted := _wrong(option, one):
            raise BadConfig(
                f"{owner}: option '{option.name}': expected {wanted}, got '{text}' "
                f"('rlplug info {owner}' shows its type and default)"
            )
    return value


def _wrong(option: Option, value: object) -> str:
    """Return what was expected instead of a value, or an empty string; sequences are left to the configuration."""
    if value is None and option.optional:
        return ""
    if option.type in ("ints", "floats", "strs", "repeated"):
        return _wrong_items(option, value)
    if option.type == "choice":
        return "" if value in option.choices else f"one of {', '.join(option.choices)}"
    if not isinstance(value, _PYTHON[option.type]) or (
        isinstance(value, bool) and option.type != "bool"
    ):
        number = "a number or a schedule such as linear(a,b)" if option.scheduled else "a number"
        return {"int": "an integer", "float": number, "bool": "yes or no"}.get(
            option.type, "a text"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _out_of_range(option, value)
    return ""


def _wrong_items(option: Option, value: object) -> str:
    kind = _PYTHON.get(option.type[:-1], str)
    if isinstance(value, list) and all(
        isinstance(item, kind) and not isinstance(item, bool) for item in value
    ):
        return ""
    return "texts" if kind is str else f"numbers as in {shown(option.default or [64, 64])}"


def _out_of_range(option: Option, value: float) -> str:
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


def assigned(pairs: Sequence[str], options: Iterable[Option], owner: str) -> dict[str, object]:
    """The values of `--set name=value` pairs.

    Raises:
        UsageError: a pair without `=`. BadConfig: an unknown name or a wrong value.
    """
    known = {option.name: option for option in options}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: write --set name=value")
        name = name.strip()
        if name.startswith(tuple(PREFIXES.values())):
            values[name] = free(text)
            continue
        if name not in known:
            near = nearest(name, known)
            raise BadConfig(
                f"{owner} has no option '{name}'{near} ('rlplug info {owner}' lists them)"
            )
        values[name] = parsed(known[name], text, owner)
    return values


def from_file(path: Path | None, options: Iterable[Option], owner: str) -> dict[str, object]:
    """The options of a `--config` file: TOML, with dotted names or tables.

    Each is checked, whatever goes over it.

    Raises:
        UsageError: it cannot be read. BadConfig: an unknown name or a wrong value.
    """
    if path is None:
        return {}
    known = {option.name: option for option in options}
    values = _toml(path, "configuration")
    for name, value in values.items():
        if name.startswith(tuple(PREFIXES.values())):
            continue
        if name not in known:
            near = nearest(name, known)
            raise BadConfig(
                f"{path}: {owner} has no option '{name}'{near} ('rlplug info {owner}' lists them)"
            )
        _check(path, known[name], value, owner)
    return values


def _check(file: Path | str, option: Option, value: object, owner: str, name: str = "") -> None:
    """Refuse a value of a file that an option does not take; `name` is what the file calls it."""
    text = value if isinstance(value, str) else None
    if text == "none" and option.optional:  # TOML has no null
        return
    try:
        schedule = written(text) if option.type == "float" else None
    except BadConfig as error:
        raise BadConfig(f"{file}: '{name or option.name}': {error}") from error
    for one in (
        tested(option, schedule) if schedule else (meant(option.name, plain(value, option.type)),)
    ):
        if wanted := _wrong(option, one):
            raise BadConfig(
                f"{file}: '{name or option.name}': expected {wanted}, got {value!r} ('rlplug info {owner}' shows its "
                "type and default)"
            )


def nets(options: Iterable[Option]) -> list[str]:
    """Return the prefix of the options of each network of an algorithm: `net.`, and of a few `critic_net.`."""
    return [
        option.name.removesuffix(FACTORY)
        for option in options
        if option.name.endswith(f"net.{FACTORY}")
    ]


def network(word: str | None, options: Sequence[Option], owner: str) -> dict[str, object]:
    """The options that `--net` stands for, those of a TOML file or a factory, for every network of the algorithm.

    Raises:
        UsageError: it is neither, or cannot be read. BadConfig: the file sets an unknown option or a wrong value.
    """
    if word is None:
        return {}
    if word.endswith(".toml"):
        values = _toml(Path(word), "network")
    elif ":" in word and not word.endswith(".py"):
        values = {FACTORY: word}
    else:
        raise UsageError(
            f"--net {word}: it names no function; write --net ./my_net.py:make or --net my_net.toml"
        )
    found: dict[str, object] = {}
    for prefix in nets(options):
        known = {
            one.name.removeprefix(prefix): one for one in options if one.name.startswith(prefix)
        }
        for name, value in values.items():
            _check_network(word, name, value, known, owner)
            found[prefix + name] = value
    return found


def _check_network(
    file: str, name: str, value: object, known: Mapping[str, Option], owner: str
) -> None:
    if name not in known:
        near = nearest(name, known)
        raise BadConfig(
            f"{file}: a network has no '{name}'{near} ('rlplug info {owner}' lists all as net.NAME)"
        )
    _check(file, known[name], value, owner, name)


def _toml(path: Path, noun: str) -> dict[str, object]:
    try:
        return flat(from_toml(path))
    except OSError as error:
        raise UsageError(f"the {noun} file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the {noun} file {path} is not TOML: {error}") from error


def gathered(
    given: Mapping[str, object],
    pairs: Sequence[str],
    file: Path | None,
    options: Sequence[Option],
    owner: str,
    net: str | None = None,
) -> tuple[dict[str, object], dict[str, str]]:
    """Return what the user set and where: an option wins over `--set`, that over `--net` and that over the file.

    Presets and defaults come later.
    """
    typed = {
        option.name: given[variable(option.name)]
        for option in options
        if variable(option.name) in given
    }
    typed |= {
        name: value for name, value in given.items() if name.startswith(tuple(PREFIXES.values()))
    }
    return merge(
        ("option", typed),
        ("set", assigned(pairs, options, owner)),
        ("net", network(net, options, owner)),
        ("config", from_file(file, options, owner)),
    )
