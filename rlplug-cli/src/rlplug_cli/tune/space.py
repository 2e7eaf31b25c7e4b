"""The space of a search: ranges that an algorithm declares, that were typed, or that a TOML file holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_cli.parameters import flat_toml, parse_option
from rlplug_cli.sweep.grid import LISTS, alternatives
from rlplug_core.config import Option, Range
from rlplug_core.errors import BadConfig, did_you_mean

if TYPE_CHECKING:
    from optuna.trial import Trial

_BETWEEN = re.compile(r"^(?P<low>[^.,:]\S*?)\.\.(?P<high>[^:]+)(?::(?P<kind>log|uniform))?$")
#: The name of "no value" among choices; Optuna stores plain values only.
NONE = "none"


def ranges_of(options: Iterable[Option]) -> dict[str, Range]:
    """Return the ranges that an algorithm's author declared."""
    return {
        option.name: _as_integers(option, option.search)
        for option in options
        if option.search is not None
    }


def _as_integers(option: Option, range: Range) -> Range:
    """Return the range as one of integers if the option takes only integers."""
    if option.type != "int" or range.kind == "choice":
        return range
    kind = "integer" if range.kind == "uniform" else range.kind
    return Range(kind, tuple(map(int, range.values)))


def parse_range(option: Option, text: str, owner: str) -> Range | None:
    """Parse a range such as `1e-5..1e-2:log`, `16..256` or `0.1,0.2,0.3`; return None for a single value.

    Raises:
        BadConfig: a bound or a choice is not a value of the option, or the bounds are in the wrong order.
    """
    match = _BETWEEN.match(text)
    if match and option.type in ("int", "float"):
        low, high = (parse_option(option, match[name], owner) for name in ("low", "high"))
        if not low < high or (match["kind"] == "log" and low <= 0):
            raise BadConfig(
                f"{owner}: option '{option.name}': the range {text} is empty or has no logarithm"
            )
        return _as_integers(option, Range(match["kind"] or "uniform", (low, high)))
    choices = alternatives(text, option.type)
    if len(choices) < 2:
        return None
    for word in choices:
        parse_option(option, word, owner)
    return Range("choice", tuple(choices))


def from_file(
    path: Path,
    options: Iterable[Option],
    owner: str,
) -> tuple[dict[str, Range], list[str]]:
    """Return the ranges of a TOML file, and its fixed values as `name=value`.

    A string is read as on the command line, a list holds choices, other values are fixed. A list of numbers is one
    fixed value if the option takes such lists.

    Raises:
        UsageError: the file cannot be read. BadConfig: it names an option that the algorithm does not have.
    """
    by_name = {option.name: option for option in options}
    ranges = {}
    fixed = []
    for name, value in flat_toml(path, "ranges").items():
        if name not in by_name:
            raise BadConfig(f"{path}: {owner} has no option '{name}'{did_you_mean(name, by_name)}")
        text = _text(value, _separator(by_name[name], value))
        range = parse_range(by_name[name], text, owner)
        if range is None:
            fixed.append(f"{name}={text}")
        else:
            ranges[name] = range
    return ranges, fixed


def _separator(option: Option, value: object) -> str:
    """Return the separator between items of a list: commas keep a list of numbers one value of a list option."""
    nested = isinstance(value, list) and any(isinstance(item, list) for item in value)
    single_value = option.type in ("ints", "floats") and isinstance(value, list) and not nested
    return ";" if option.type in LISTS and not single_value else ","


def _text(value: object, separator: str) -> str:
    if isinstance(value, list):
        return separator.join(_text(item, ",") for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def suggest(trial: Trial, space: Mapping[str, Range]) -> dict[str, object]:
    """Return a value for every range; the same again for a trial that was interrupted."""
    return {name: _suggest_value(trial, name, range) for name, range in space.items()}


def _suggest_value(trial: Trial, name: str, range: Range) -> object:
    if range.kind == "choice":
        return trial.suggest_categorical(name, [choice_value(value) for value in range.values])
    low, high = range.values
    if isinstance(low, int) and isinstance(high, int) and range.kind != "uniform":
        return trial.suggest_int(name, low, high, log=range.kind == "log")
    return trial.suggest_float(name, low, high, log=range.kind == "log")


def choice_value(value: object) -> bool | int | float | str:
    """Return a choice as Optuna can store it: lists and None become strings."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if value is None:
        return NONE
    return value if isinstance(value, bool | int | float) else str(value)
