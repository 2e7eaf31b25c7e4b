"""Configurations whose numbers follow schedules: their values at a moment, and a guard against reading them too early.

A number that is read once, when a learner is built, would silently stay what it was at the beginning. So outside of
updates such a number cannot be read at all: whoever tries gets the sentence that the user needs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeVar

from rlplug_core.errors import BadConfig
from rlplug_core.schedules import Schedule

C = TypeVar("C")


#: Where a guard keeps what it guards.
_WHOLE = "_whole"


def unguarded(config: C) -> C:
    """What a guard guards; a configuration without one as it is."""
    whole: C = vars(config).get(_WHOLE, config)
    return whole


def at(config: C, schedules: Mapping[str, Schedule], progress: float) -> C:
    """`config` with the values that the schedules (by dotted name) have at `progress`."""
    for name, schedule in schedules.items():
        config = _with(config, name.split("."), schedule(progress))
    return config


def _with(config: C, path: list[str], value: float) -> C:
    name, *rest = path
    changed = _with(getattr(config, name), rest, value) if rest else value
    return dataclasses.replace(config, **{name: changed})  # type: ignore[type-var]


def guarded(config: C, names: Collection[str], prefix: str = "") -> C:
    """A copy of `config` that refuses to give the numbers with these dotted names; itself where there are none.

    Raises:
        BadConfig: a class among them has slots, where a guard has no place.
    """
    own = frozenset(name for name in names if "." not in name)
    nested = {name.partition(".")[0] for name in names} - own
    if not names:
        return config
    guard: Any = copy.copy(config)
    try:
        object.__setattr__(guard, _WHOLE, config)
    except AttributeError as error:
        raise BadConfig(
            f"option '{prefix}{min(names)}' cannot follow a schedule: its class {type(config).__name__} has slots; "
            f"give it a number, or leave slots=True out of the class"
        ) from error
    for name in nested:
        inner = [rest for first, _, rest in (one.partition(".") for one in names) if first == name and rest]
        object.__setattr__(guard, name, guarded(getattr(config, name), inner, f"{prefix}{name}."))
    object.__setattr__(guard, "__class__", _guard(guard.__class__, own, prefix))
    whole: C = guard
    return whole


@cache
def _guard(cls: type[Any], names: frozenset[str], prefix: str) -> type[Any]:
    """A subclass of a configuration's class whose instances keep some attributes to themselves."""

    def refuse(self: Any, name: str) -> Any:
        if name in names:
            raise BadConfig(
                f"option '{prefix}{name}' cannot follow a schedule: it is read once, before the first update; "
                f"give it a number"
            )
        return object.__getattribute__(self, name)

    return type(cls.__name__, (cls,), {"__getattribute__": refuse})
