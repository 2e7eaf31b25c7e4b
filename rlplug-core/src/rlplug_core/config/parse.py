"""Convert options from the command line, a file or Python to a checked configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec

from rlplug_core.config.numbers import plain_number, whole_number
from rlplug_core.config.options import Config
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schedules import FORMS, ParsedSchedule, parse_schedule
from rlplug_core.config.schema import Option, flat, flatten, schema
from rlplug_core.config.synonyms import nearest
from rlplug_core.errors import BadConfig

C = TypeVar("C")
#: Repeated options with the value `none`, which differs from the default: evaluations then use no wrappers.
NONE_IS_A_VALUE = {"eval_wrap"}
#: The names of types in messages of msgspec.
TYPE_NAMES = {"int", "float", "str", "bool", "null", "array", "object"}
#: The start of the item with its own options in a list, as in `a,b:option=value`.
_WITH_OPTIONS = re.compile(r"(?:^|,)[^,=]*:[A-Za-z_][\w.-]*=")
#: Words for numbers, by option.
WORD_VALUES: dict[tuple[str, object], int] = {
    ("env_workers", "auto"): 0,
    ("workers", "auto"): 0,
    ("keep_checkpoints", "all"): 0,
}
BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def convert(config: type[C], values: Mapping[str, object], owner: str) -> C:
    """Return a configuration from dotted or nested `values`; missing ones have the dataclass's defaults.

    An option of the type `Scheduled` may be a schedule: the configuration then has its first value. All its values must
    be in range, but later ones may be at an open bound, such as a learning rate that decreases to 0.

    Args:
        config: a dataclass of options.
        values: the values.
        owner: the algorithm or plugin with these options, such as `a2c`; for messages.

    Raises:
        BadConfig: a name is unknown, or a value has a wrong type or is out of range.
    """
    dotted = flat(values)
    check_names(dotted, [option.name for option in schema(config)], owner)
    return convert_with_schedules(config, dotted, owner)[0]


def convert_both(
    config: type[C],
    values: Mapping[str, object],
    algorithm: str,
) -> tuple[RunOptions, C, dict[str, ParsedSchedule]]:
    """Return the options of a run, those of its algorithm in `config`, and the schedules of the latter.

    Raises:
        BadConfig: as `convert`.
    """
    run_names = {option.name for option in schema(RunOptions)}
    config_names = {option.name for option in schema(config)}
    check_names(values, run_names | config_names, algorithm)
    run_values = {name: value for name, value in values.items() if name in run_names}
    config_values = {name: value for name, value in values.items() if name in config_names}
    options, _ = convert_with_schedules(RunOptions, run_values, algorithm)
    return options, *convert_with_schedules(config, config_values, algorithm)


def convert_with_schedules(
    config: type[C],
    values: Mapping[str, object],
    owner: str,
) -> tuple[C, dict[str, ParsedSchedule]]:
    """Return a configuration as `convert` does, and the schedules among `values`; all names are known and dotted."""
    options = {option.name: option for option in schema(config)}
    plain_values = {
        name: _plain_value(options[name], value, owner) for name, value in values.items()
    }
    scheduled = _schedules(options, values, owner)
    first_values = {name: schedule.values[0] for name, schedule in scheduled.items()}
    start = {**flatten(config()), **plain_values, **first_values}
    trials = [
        {**start, name: value}
        for name, schedule in scheduled.items()
        for value in values_in_range(options[name], schedule)
    ]
    try:
        for trial in (*trials, start):
            converted = msgspec.convert(nest(trial), config, strict=True)
    except msgspec.ValidationError as error:
        raise BadConfig(_type_error_text(str(error), owner, options)) from error
    if scheduled:
        converted = _with_schedules(converted, scheduled, owner)
    return converted, scheduled


def _plain_value(option: Option, value: object, owner: str) -> object:
    """Return the value of an option in Python's own types.

    Raises:
        BadConfig: it is infinite or NaN.
    """
    # TOML has no null; the string "none" takes its place.
    if option.optional and isinstance(value, str) and value == "none":
        return None
    plain_value = number_of_word(option.name, plain_number(value, option.type))
    if isinstance(plain_value, float) and not isfinite(plain_value):
        hint = f"('rlplug info {owner}' shows its type and default)"
        raise BadConfig(
            f"{owner}: option '{option.name}': expected a finite number, got {value} {hint}"
        )
    return plain_value


def check_names(
    values: Iterable[str],
    options: Iterable[str],
    owner: str,
) -> None:
    """Raise `BadConfig` if a name is not among the options of `owner`, such as `a2c`."""
    known = set(options)
    for name in values:
        if name not in known:
            raise BadConfig(
                f"{owner} has no option '{name}'{nearest(name, known)} ('rlplug info {owner}' lists them)"
            )


def current_names(
    config: type[object],
    values: Mapping[str, object],
    owner: str,
) -> dict[str, object]:
    """Return `values` with the current names of options that `config.formerly` renames.

    Args:
        config: a dataclass of options.
        values: values by dotted name; other names stay.
        owner: as for `convert`.

    Raises:
        BadConfig: an option is given under both names.
    """
    former: Mapping[str, str] = getattr(config, "formerly", {})
    for name in values:
        if former.get(name) in values:
            raise BadConfig(
                f"{owner}: option '{name}' is now '{former[name]}', and both are given; leave out '{name}'"
            )
    return {former.get(name, name): value for name, value in values.items()}


def _with_schedules(
    config: C,
    scheduled: Mapping[str, ParsedSchedule],
    owner: str,
) -> C:
    """Return a configuration with options that follow schedules."""
    if not isinstance(config, Config):
        raise BadConfig(
            f"{owner}: option '{min(scheduled)}' cannot follow a schedule: {type(config).__name__} is not an "
            "rlplug_core.Config; give it a number"
        )
    try:
        return config.following({name: parsed.schedule for name, parsed in scheduled.items()})
    except BadConfig as error:
        raise BadConfig(f"{owner}: {error}") from error


def _schedules(
    options: Mapping[str, Option],
    values: Mapping[str, object],
    owner: str,
) -> dict[str, ParsedSchedule]:
    """Return the schedules among `values`, by dotted name.

    Raises:
        BadConfig: a schedule has a wrong form, or its option cannot follow one.
    """
    scheduled = {}
    for name, value in values.items():
        if options[name].type in ("str", "strs", "repeated", "choice", "choices", "target"):
            continue
        try:
            schedule = parse_schedule(value)
        except BadConfig as error:
            raise BadConfig(f"{owner}: option '{name}': {error}") from error
        if schedule is not None and not options[name].scheduled:
            schedulable = (
                ", ".join(option.name for option in options.values() if option.scheduled)
                or "none of its options"
            )
            raise BadConfig(
                f"{owner}: option '{name}' cannot follow a schedule, give it a number; these can: {schedulable}"
            )
        if schedule is not None:
            scheduled[name] = schedule
    return scheduled


def values_in_range(
    option: Option,
    schedule: ParsedSchedule,
) -> tuple[float, ...]:
    """Return the values of a schedule that must be in range: all except later ones at an open bound."""
    start, *later = schedule.values
    return (
        start,
        *(value for value in later if not (option.open_minimum and value == option.minimum)),
    )


def number_of_word(name: str, value: object) -> object:
    """Return the number for an option's word, such as `auto`; other values unchanged."""
    return WORD_VALUES.get((name, value), value) if isinstance(value, str) else value


def parse(option: Option, text: str) -> object:
    """Convert a string from the command line to the option's type; text of a wrong form stays a string."""
    if isinstance(number := number_of_word(option.name, text), int):
        return number
    if option.optional and text.lower() in ("none", "null"):
        return None
    if option.type == "repeated":
        return [] if text.lower() == "none" and option.name not in NONE_IS_A_VALUE else [text]
    parsers: dict[str, Callable[[str], Any]] = {"int": whole_number, "float": float}
    parse_item = parsers.get(option.type.removesuffix("s"), str)
    try:
        if option.type == "bool":
            return BOOLEANS[text.lower()]
        if option.type == "strs":
            return _words(text)
        if option.type in ("ints", "floats"):
            return _items(text, parse_item)
        if option.type == "choices":
            return _items(text, str) if set(text) & set("[,") else text
        return parse_item(text)
    except (ValueError, KeyError):
        return text


def _items(text: str, parse_item: Callable[[str], Any]) -> list[Any]:
    """Return the items of a typed list, such as `64,64` or `[64, 64]`."""
    return [parse_item(item) for item in text.strip("[]()").replace(" ", "").split(",") if item]


def _words(text: str) -> list[str]:
    """Return the items of a typed list of words; only the last one may have options, `NAME:option=value,…`."""
    start = _WITH_OPTIONS.search(text)
    if start is None:
        return _items(text, str)
    return [*_items(text[: start.start()], str), text[start.start() :].strip(", ")]


def nest(values: Mapping[str, object]) -> dict[str, object]:
    """Return nested tables for values with dotted names; the inverse of `flat`."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return nested


def _type_error_text(
    message: str,
    owner: str,
    options: Mapping[str, Option],
) -> str:
    """Return a message of msgspec, ``Expected `int`, got `str` - at `$.name` ``, as our own sentence with a remedy."""
    reason, _, path = message.partition(" - at `$")
    name = path.rstrip("`").strip(".")
    if not name:
        return f"{owner}: {reason}"
    option = options.get(name.partition("[")[0])
    (_, _, got) = reason.partition(", got ")
    form = _form(option, got.strip("`")) if option and got else ""
    return (
        f"{owner}: option '{name}': {reason[0].lower()}{reason[1:]}{form} "
        f"('rlplug info {owner}' shows its type and default)"
    )


def _form(option: Option, got: str) -> str:
    """Return the end of a sentence: how to write a schedule, a class or a named value for an option."""
    if option.scheduled:
        return f"; a schedule is a string of the form {FORMS}"
    if got in TYPE_NAMES:
        return ""
    places = {"repeated": "['./file.py:Name']", "target": "'./file.py:Name'"}
    if option.type in places:
        return f"; write the import path of a class as a string: {places[option.type]}"
    return f"; write its name, one of {', '.join(option.choices)}" if option.choices else ""
