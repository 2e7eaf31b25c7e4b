"""Checks without a run: metadata, index, configuration, presets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from rlplug_core.config.options import Range
from rlplug_core.config.parse import convert
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import Option, flat, flatten, schema
from rlplug_core.errors import BadConfig, PluginError, did_you_mean
from rlplug_core.plugins import index, indexing
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.records import FIRST_PARTY, Record, canonical
from rlplug_core.plugins.reserved import RESERVED
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.subject import Subject

#: The names of all runners.
RUNNERS = ("sync", "async", "decoupled")


def entry_point(subject: Subject) -> None:
    """The entry point is found under its name, and its distribution requires versions of rlplug-core."""
    record = _record(subject)
    if record.status != "ok":
        raise Failed(f"{record} is {record.status}: {record.reason}")
    lines = metadata.distribution(record.distribution).requires or []
    required = {canonical(Requirement(line).name) for line in lines}
    if record.distribution not in FIRST_PARTY and "rlplug-core" not in required:
        raise Failed(
            f"{record.distribution} does not require rlplug-core, so its supported versions are unknown; "
            "add rlplug-core with bounds to its dependencies"
        )


def fresh_index(subject: Subject) -> None:
    """The index, if there is one, describes the current code."""
    record = _record(subject)
    path = index.file(record)
    if path is None or not path.is_file():
        raise Skipped(f"it has no index; 'rlplug index {record.distribution}' writes one")
    changed = index.changed_modules(record)
    if changed and not any(name.partition(".")[0] == record.top_level for name in changed):
        raise Skipped(
            f"its index was made with another version of {changed[0]}; rlplug ignores it until its author runs "
            f"'rlplug index {record.distribution}' again"
        )
    _, reason = index.read(record)
    if reason:
        raise Failed(f"{reason}; write it again with: rlplug index {record.distribution}")
    if drift := indexing.drift(record):
        raise Failed(drift)


def options(subject: Subject) -> None:
    """Every option has a type for the command line, a valid default, and a name that is not reserved."""
    config = subject.cls.Config
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise Failed("Config is not a dataclass; write @dataclass(frozen=True) above it")
    try:
        known = {option.name: option for option in schema(config)}
    except BadConfig as error:
        raise Failed(str(error)) from error
    if reserved := sorted(RESERVED & known.keys()):
        raise Failed(f"option '{reserved[0]}' is reserved for every run; rename it")
    _check_defaults(subject, config)
    _check_former_names(config, known)
    search: Mapping[str, Range] = getattr(config, "search", {})
    for name, searched in search.items():
        if name not in known:
            raise Failed(
                f"search names an option '{name}' that does not exist{did_you_mean(name, known)}"
            )
        if problem := _outside(known[name], searched):
            raise Failed(f"search: {problem}")


def _check_former_names(
    config: type[object],
    known: Mapping[str, Option],
) -> None:
    """Raise Failed if `formerly` does not lead from former names to current options."""
    formerly: Mapping[str, str] = getattr(config, "formerly", {})
    for former, current in formerly.items():
        if former in known:
            raise Failed(f"formerly: '{former}' is still an option; leave it out of formerly")
        if current not in known:
            raise Failed(
                f"formerly names an option '{current}' that does not exist{did_you_mean(current, known)}"
            )


def help_texts(subject: Subject) -> None:
    """Every option has a comment or metadata with its help."""
    without_help = [option.name for option in schema(subject.cls.Config) if not option.help]
    if without_help:
        raise Failed(f"no help for {', '.join(without_help)}; write a comment after the field")


def runner_names(subject: Subject) -> None:
    """`runners` lists the supported runners, best first."""
    runners = subject.cls.runners
    if not isinstance(runners, tuple | list) or not runners:
        raise Failed(f'runners is {runners!r}; write a tuple such as ("sync",)')
    for name in runners:
        if name not in RUNNERS:
            raise Failed(
                f"there is no runner '{name}'{did_you_mean(str(name), RUNNERS)} ({', '.join(RUNNERS)})"
            )


def presets(subject: Subject) -> None:
    """Every table of the presets sets existing options to valid values."""
    record = _record(subject)
    try:
        files = [presets for presets in chain(record) if presets.path is not None]
    except PluginError as error:
        raise Failed(str(error)) from error
    if not files:
        raise Skipped("it has no presets")
    run_names = {option.name for option in schema(RunOptions)}
    for path, name, table in (
        (file.path, name, table) for file in files for name, table in file.all.items()
    ):
        values = flat(table)
        try:
            convert(
                RunOptions,
                {key: value for key, value in values.items() if key in run_names},
                record.id,
            )
            algorithm_values = {key: value for key, value in values.items() if key not in run_names}
            convert(subject.cls.Config, algorithm_values, record.id)
        except BadConfig as error:
            raise Failed(f"{path}, table '{name}': {error}") from error


def _record(subject: Subject) -> Record:
    if subject.record is None:
        raise Skipped("it is not installed as a plugin")
    return subject.record


def _check_defaults(subject: Subject, config: type[object]) -> None:
    """Raise Failed if a default does not pass the checks of user input, or changes in them."""
    try:
        converted = convert(config, flatten(config()), subject.name)
    except BadConfig as error:
        raise Failed(f"a default is not accepted: {error}") from error
    if converted != config():
        raise Failed(
            "a default changes when it is converted: write tuples, not lists, and plain values"
        )


def _outside(option: Option, searched: Range) -> str:
    """Return why a search range exceeds the range of the option, or ""."""
    values: list[Any] = []
    for value in searched.values:
        values += value if isinstance(value, tuple | list) else (value,)
    for value in values:
        if option.choices and str(value) not in option.choices:
            return f"{option.name} cannot be {value!r}"
        if isinstance(value, bool | str) or value is None:
            continue
        if option.minimum is not None and (
            value < option.minimum or (option.open_minimum and value == option.minimum)
        ):
            return (
                f"{option.name} cannot be {value}, it must be {'above' if option.open_minimum else 'at least'} "
                f"{option.minimum:g}"
            )
        if option.maximum is not None and value > option.maximum:
            return f"{option.name} cannot be {value}, it must be at most {option.maximum:g}"
    return ""
