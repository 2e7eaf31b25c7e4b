"""Configurations: frozen dataclasses with help texts from field comments and strictly checked types.

An author writes:

    @dataclass(frozen=True)
    class MyConfig(Config):
        n_steps: Count = 128             # rollout length per environment
        learning_rate: Positive = 1e-3   # Adam's learning rate
        search = {"learning_rate": log(1e-5, 1e-2)}
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule
from rlplug_core.errors import BadConfig

#: An integer of at least 1.
Count = Annotated[int, msgspec.Meta(ge=1)]
#: An integer of at least 2.
Several = Annotated[int, msgspec.Meta(ge=2)]
#: An integer of at least 0.
Natural = Annotated[int, msgspec.Meta(ge=0)]
#: An integer of at least 1 that fits into a table's column of 64 bits.
Steps = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
#: An integer of at least 0 that fits into a table's column of 64 bits.
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: A number above 0.
Positive = Annotated[float, msgspec.Meta(gt=0)]
#: A number of at least 0.
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
#: A number from 0 to 1.
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
#: A number above 0, at most 1.
UnitInterval = Annotated[float, msgspec.Meta(gt=0, le=1)]
T = TypeVar("T")
C = TypeVar("C", bound="Config")


class Follows:
    """The mark of an option that may follow a schedule."""


#: A number that may follow a schedule, such as `Scheduled[Positive]`; options of other types refuse a schedule.
Scheduled = Annotated[T, Follows]
#: Strings that may contain commas, so each is given by its own `--option VALUE`.
Repeated = Annotated[tuple[str, ...], "repeated"]
#: A string that names something to import: `./file.py:name` or `module:name`; some options also take a plugin's name.
#: Its own options follow as `:option=value,…`. A run keeps a copy of the file.
Importable = Annotated[str, "target"]


@dataclass(frozen=True)
class Range:
    """A search range for tuning; `kind` is `log`, `uniform`, `integer` or `choice`."""

    kind: str
    values: tuple[Any, ...]


def log(low: float, high: float) -> Range:
    """Return a log-uniform range between two positive numbers."""
    return Range("log", (low, high))


def uniform(low: float, high: float) -> Range:
    """Return a uniform range between two numbers."""
    return Range("uniform", (low, high))


def integer(low: int, high: int) -> Range:
    """Return a uniform range of the integers from `low` to `high`, both included."""
    return Range("integer", (low, high))


def choice(*values: object) -> Range:
    """Return a range of the given values, such as strings."""
    return Range("choice", values)


@dataclass(frozen=True)
class Config:
    """The base of all configurations.

    Attributes:
        search: tuning ranges by option name.
        formerly: the current names of options by their former names, so that older runs and files stay readable.
        schedules: the schedules of options, by dotted name; the options themselves have the values at the start.
    """

    search: ClassVar[Mapping[str, Range]] = {}
    formerly: ClassVar[Mapping[str, str]] = {}
    schedules: ClassVar[Mapping[str, Schedule]] = {}

    def at(self: C, clock: Clock) -> C:
        """Return the configuration with the current value of every scheduled option; itself if there is none."""
        config = self
        for name, schedule in self.schedules.items():
            config = _with_value(config, name.split("."), schedule(clock.progress))
        return config

    def following(self: C, schedules: Mapping[str, Schedule]) -> C:
        """Return a copy with options that follow `schedules`, by dotted name.

        Raises:
            BadConfig: its class has slots, which leave no place for schedules.
        """
        copied = copy.copy(self)
        try:
            object.__setattr__(copied, "schedules", schedules)
        except AttributeError as error:
            raise BadConfig(
                f"option '{min(schedules)}' cannot follow a schedule: its class {type(self).__name__} has slots; "
                "give it a number, or leave slots=True out of the class"
            ) from error
        return copied


def watch(config: C, seen: set[str]) -> C:
    """Return a copy that adds each option that is read to `seen`; a class with slots adds all its options at once."""
    names = {field.name for field in dataclasses.fields(config)}
    if not type(config).__dictoffset__:
        seen |= names
        return config

    class Watched(type(config)):  # type: ignore[misc] # mypy does not know the base class
        def __getattribute__(self, name: str) -> object:
            if name in names:
                seen.add(name)
            return super().__getattribute__(name)

    copied: C = Watched.__new__(Watched)
    vars(copied).update(vars(config))
    return copied


def _with_value(config: C, path: list[str], value: float) -> C:
    name, *remaining = path
    changed = _with_value(getattr(config, name), remaining, value) if remaining else value
    return dataclasses.replace(config, **{name: changed})
