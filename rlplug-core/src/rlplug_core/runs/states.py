"""Checks what a checkpoint's clock, events and manifest say, before a run goes on with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from rlplug_core.config.files import as_type

_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Step = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]


class Clock(msgspec.Struct):
    """The state of `rlplug_core.clock.Clock`."""

    total: _Whole
    limit: _Whole
    steps: _Whole
    updates: _Whole
    scale: float = 1.0


class Reason(msgspec.Struct):
    """The state of what ends a run."""

    reason: str


class Recent(msgspec.Struct):
    """The state of `rlplug_core.loop.episode_stats.EpisodeStats`."""

    returns: list[float]
    lengths: list[_Whole]
    said: list[tuple[bool | None, dict[str, float]]]
    names: list[str] = []


class Controllers(msgspec.Struct):
    """The state of `rlplug_core.loop.controller_group.ControllerGroup`."""

    all: list[dict[str, Any]]
    settings: dict[str, Any]


class Events(msgspec.Struct):
    """The state of `rlplug_core.loop.events.Events`."""

    steps: _Step
    logged: _Step
    evaluated: _Step
    best: float | None
    last: float | None
    episodes: _Whole
    recent: Recent
    wall: float
    pending: list[tuple[_Whole, _Whole, _Whole, float, _Whole, bool | None, dict[str, float], str]]
    controllers: Controllers
    limits: Reason
    ended: str


class Environment(msgspec.Struct):
    """The part of a manifest that a resume compares with what is here."""

    versions: dict[str, str] = {}


class Manifest(msgspec.Struct):
    """The part of a manifest that a resume reads; what checks a run's parts writes checkpoints without it."""

    environment: Environment | None = None
    exact: bool = True
    inexact: str = ""
    journal: _Whole | None = None


COMPONENTS: dict[str, Any] = {"clock": Clock, "events": Events}


def check(path: Path, name: str, state: object) -> None:
    """Check the component `name` of the checkpoint at `path`, if it is one that the run itself reads.

    Raises:
        BadFile: something is missing or of a wrong type.
    """
    if name in COMPONENTS:
        as_type(state, COMPONENTS[name], path / f"{name}.json")
