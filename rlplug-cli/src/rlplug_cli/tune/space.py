"""The space of a search: the ranges that an algorithm declares, those that were typed, or those of a TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.parameters import parsed
from rlplug_cli.sweep.grid import LISTS, alternatives
from rlplug_core.config.files import from_toml
from rlplug_core.config.options import Range
from rlplug_core.config.schema import Option, flat
from rlplug_core.errors import BadConfig, UsageError, did_you_mean

if TYPE_CHECKING:
    from optuna.trial import Trial

_BETWEEN = re.compile(r"^(?P<low>[^.,:]\S*?)\.\.(?P<high>[^:]+)(?::(?P<kind>log|uniform))?$")
#: What stands for no value among choices, which must be plain.
NONE = "none"


def declared(options: Iterable[Option]) -> dict[str, Range]:
    """The ranges that an algorithm's author gave."""
    return {
        option.name: _fitting(option, option.search)
        for option in options
        if option.search is not None
    }


def _fitting(option: Option, range: Range) -> Range:
    """The range over integers where the option takes no others."""
    if option.type != "int" or range.kind == "choice":
        return range
    return Range(
        "integer" if range.kind == "uniform" else range.kind, tuple(map(int, range.values))
    )


def written(option: Option, text: str, owner: str) -> Range | None:
    """The range that a text means for an option: `1e-5..1e-2:log`, `16..256`, `0.1,0.2,0.3`; None for a single value.

    Raises:
        BadConfig: a bound or a choice is no value of the option, or the bounds are the wrong way around.
    """
    if (found := _BETWEEN.match(text)) and option.type in ("int", "float"):
        low, high = (parsed(option, found[name], owner) for name in ("low", "high"))
        if not low < high or (found["kind"] == "log" and low <= 0):
            raise BadConfig(
                f"{owner}: option '{option.name}': the range {text} is empty or has no logarithm"
            )
        return _fitting(option, Range(found["kind"] or "uniform", (low, high)))
    choices = alternatives(text, option.type)
    if len(choices) < 2:
        return None
    for word in choices:
        parsed(option, word, owner)
    return Range("choice", tuple(choices))


def from_file(
    path: Path, options: Iterable[Option], owner: str
) -> tuple[dict[str, Range], list[str]]:
    """The ranges of a TOML file, and as `name=value` what it fixes.

    A text is read as on the command line, a list holds choices, anything else is fixed; so is a list of numbers of an
    option whose value is one.

    Raises:
        UsageError: the file cannot be read. BadConfig: it names what the algorithm has not.
    """
    try:
        content = flat(from_toml(path))
    except OSError as error:
        raise UsageError(f"the ranges {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the ranges {path} are not TOML: {error}") from error
    known = {option.name: option for option in options}
    ranges = {}
    fixed = []
    for name, value in content.items():
        if name not in known:
            raise BadConfig(f"{path}: {owner} has no option '{name}'{did_you_mean(name, known)}")
        text = _text(value, _between(known[name], value))
        found = written(known[name], text, owner)
        if found is None:
            fixed.append(f"{name}={text}")
        else:
            ranges[name] = found
    return ranges, fixed


def _between(option: Option, value: object) -> str:
    """Return what parts the items of a list: a list of numbers is one value of an option that takes such lists."""
    one = (
        option.type in ("ints", "floats")
        and isinstance(value, list)
        and not any(isinstance(v, list) for v in value)
    )
    return ";" if option.type in LISTS and not one else ","


def _text(value: object, between: str) -> str:
    if isinstance(value, list):
        return between.join(_text(item, ",") for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def suggested(trial: Trial, space: Mapping[str, Range]) -> dict[str, object]:
    """A value for every range; asked again for a trial that has been interrupted, the same."""
    return {name: _suggested(trial, name, range) for name, range in space.items()}


def _suggested(trial: Trial, name: str, range: Range) -> object:
    if range.kind == "choice":
        return trial.suggest_categorical(name, [_plain(value) for value in range.values])
    low, high = range.values
    if isinstance(low, int) and isinstance(high, int) and range.kind != "uniform":
        return trial.suggest_int(name, low, high, log=range.kind == "log")
    return trial.suggest_float(name, low, high, log=range.kind == "log")


def _plain(value: object) -> Any:
    """A choice as Optuna can store it: lists and nothing are written as on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return NONE if value is None else value
