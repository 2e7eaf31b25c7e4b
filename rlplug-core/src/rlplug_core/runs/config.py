"""Checks what a run's `config.json` says: whoever reads it further on meets no wrong type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from rlplug_core.config.files import as_type, from_json
from rlplug_core.errors import BadFile
from rlplug_core.runs.states import Environment

_REMEDY = "bring back the file, or delete the run with 'rlplug runs rm'"
#: What numbers may be that are put into seconds, steps and columns.
_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Source(msgspec.Struct):
    """A kept copy of a source file: where it was, its name in the run, its SHA-256."""

    file: str
    copy: str
    sha256: str


class Config(msgspec.Struct):
    """The part that every run's configuration has; options are checked where a plan is made of them."""

    name: str
    uid: str
    group: str
    algorithm: str
    env: str
    options: dict[str, Any]
    created: _Moment
    sources: dict[str, Source] = {}
    origins: dict[str, str] = {}
    environment: Environment | None = None
    seal: str = ""


class Shown(msgspec.Struct):
    """The options that are shown or compared before a plan is made."""

    seed: _Whole | None = None
    total_timesteps: _Whole | None = None
    wrap: list[str] = []


def read(path: Path) -> dict[str, Any]:
    """The content of a `config.json`.

    Raises:
        BadFile: it cannot be read, or lacks what every run's has.
    """
    try:
        found = from_json(path)
        as_type(found, Config, path)
        as_type(found["options"], Shown, path)
    except BadFile as error:
        raise BadFile(path, f"{error.reason}; {_REMEDY}") from error
    checked: dict[str, object] = found
    return checked
