"""The controllers of one run together: they are told what happened, and what they want is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from rlplug_core.clock import Clock, Steering
from rlplug_core.config.import_string import describe
from rlplug_core.errors import RlplugError
from rlplug_core.protocols import (
    Controller,
    Evaluated,
    SupportsEnded,
    SupportsEvaluated,
    SupportsSettings,
)
from rlplug_core.types import Episode, State

T = TypeVar("T")
#: What a setting may be, or a list of.
PLAIN = (bool, int, float, str, type(None))


class ControllerGroup:
    """Tells controllers of evaluations and episodes.

    Args:
        apply: takes the settings of environments where they have changed.
    """

    def __init__(
        self,
        controllers: Iterable[Controller],
        clock: Clock,
        apply: Callable[[Mapping[str, object]], None],
    ) -> None:
        self.controllers = list(controllers)
        self.clock = Steering(clock)
        self.apply = apply
        #: Whether one of them wants to know of episodes, at the step that ends them.
        self.listens = any(isinstance(one, SupportsEnded) for one in self.controllers)
        self.settings = settings_of(self.controllers)

    def evaluated(self, evaluation: Evaluated) -> str:
        """Tell of an evaluation; the first reason to stop that is new, or an empty string."""
        return self._told(
            "evaluated",
            lambda one: (
                one.evaluated(evaluation, self.clock)
                if isinstance(one, SupportsEvaluated)
                else None
            ),
        )

    def ended(self, episodes: Sequence[Episode]) -> str:
        """Tell of episodes that ended; the first reason to stop that is new, or an empty string."""
        return self._told(
            "ended",
            lambda one: one.ended(episodes, self.clock) if isinstance(one, SupportsEnded) else None,
        )

    def _told(self, what: str, tell: Callable[[Controller], None]) -> str:
        found = ""
        for one in self.controllers:
            before = one.reason
            self.clock.stopped = False
            guarded(one, what, partial(tell, one))
            said = one.reason if one.reason != before else ""
            if self.clock.stopped and not said:
                said = one.reason or f"{type(one).__name__} stopped it and gave no reason"
            found = found or said
        if (wanted := settings_of(self.controllers)) != self.settings:
            self.settings = wanted
            self.apply(wanted)
        return found

    def state_dict(self) -> State:
        return {
            "all": [one.state_dict() for one in self.controllers],
            "settings": dict(self.settings),
        }

    def load_state_dict(self, state: State) -> None:
        for one, saved in zip(self.controllers, state["all"], strict=True):
            one.load_state_dict(saved)
        self.settings = dict(state["settings"])


def settings_of(controllers: Iterable[Controller]) -> dict[str, object]:
    """The attributes that controllers want environments to have; where two name the same one, the last counts.

    Raises:
        RlplugError: a value is neither a number nor a text nor a list of them.
    """
    found: dict[str, object] = {}
    for one in controllers:
        if isinstance(one, SupportsSettings):
            wanted = guarded(one, "settings", one.settings)
            found |= {name: _plain(one, name, value) for name, value in wanted.items()}
    return found


def guarded(controller: object, what: str, call: Callable[[], T]) -> T:
    """Call a controller's method.

    Raises:
        RlplugError: it raised; it is part of what the run learns by, so the run ends.
    """
    try:
        return call()
    except RlplugError:
        raise
    except Exception as error:  # a foreign controller may raise anything
        name = type(controller).__name__
        raise RlplugError(
            f"controller {name} failed in {what}: {describe(error)}; --traceback shows where"
        ) from error


def _plain(controller: object, name: str, value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [_plain(controller, name, item) for item in value]
    raise RlplugError(
        f"controller {type(controller).__name__} sets '{name}' to a {type(value).__name__}; settings are recorded, so "
        "they are numbers, texts, booleans or lists of them"
    )
