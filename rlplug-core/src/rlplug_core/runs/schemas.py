"""The schemas of a run's files, which are checked when they are read: configuration, journal records and states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypedDict

import msgspec

from rlplug_core.config.files import as_type, from_json, parse_json
from rlplug_core.errors import BadFile
from rlplug_core.loop.episode_stats import INFO

#: Numbers that fit into columns of 64 bits.
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Step = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]


class Clock(msgspec.Struct):
    """The state of `rlplug_core.clock.Clock`."""

    total: _Whole
    limit: _Whole
    steps: _Whole
    updates: _Whole
    scale: Annotated[float, msgspec.Meta(ge=0, le=1e30)] = 1.0


class Reason(msgspec.Struct):
    """The state of the limits that end a run."""

    reason: str


class Recent(msgspec.Struct):
    """The state of `rlplug_core.loop.episode_stats.EpisodeStats`."""

    returns: list[float]
    lengths: list[_Whole]
    said: list[tuple[bool | None, dict[str, float]]]
    names: list[str] = []


class Controllers(msgspec.Struct):
    """The state of `rlplug_core.loop.controllers.ControllerGroup`."""

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
    logged_episodes: _Whole = 0


class Environment(TypedDict):
    """The part of a recorded environment that its readers need; see `runs.reproducibility.environment`."""

    versions: dict[str, str]


class Manifest(msgspec.Struct):
    """The part of a manifest that a resume reads; checkpoints of the conformance kit do not have it."""

    environment: Environment | None = None
    exact: bool = True
    inexact: str = ""
    journal: _Whole | None = None


COMPONENTS: dict[str, Any] = {"clock": Clock, "events": Events}


def check_component(path: Path, name: str, state: object) -> None:
    """Check the component `name` of the checkpoint at `path`, if it has a schema in `COMPONENTS`.

    Raises:
        BadFile: an entry is missing or has a wrong type.
    """
    if name in COMPONENTS:
        as_type(state, COMPONENTS[name], path / f"{name}.json")


_Real = float | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal."""

    seq: _Whole
    time: _Whole
    kind: str
    step: _Whole
    data: dict[str, Any]


class Start(msgspec.Struct):
    """The start of a process; it supersedes all measurements after the record `after`."""

    after: _Whole = 0
    limit: _Whole = 0
    rescale: bool = False


class End(msgspec.Struct):
    """The exit of a process: finished, failed or interrupted."""

    status: Literal["finished", "failed", "interrupted"]
    reason: str = ""


class Error(msgspec.Struct):
    """The exception that a run failed with."""

    type: str
    message: str


class Episodes(msgspec.Struct):
    """Finished episodes as columns of one length."""

    steps: list[_Whole]
    returns: list[_Real]
    lengths: list[_Whole]
    workers: list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]]

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.returns) == len(self.lengths) == len(self.workers):
            raise ValueError("columns differ in length")


def _columns_match(data: Mapping[str, Any]) -> bool:
    """Return whether the `info` columns of these episodes have the same length as the others, with numbers or None."""
    extra = [column for name, column in data.items() if name.startswith(INFO)]
    numbers = msgspec.convert(extra, list[list[float | None]])
    return all(len(column) == len(data["steps"]) for column in numbers)


class FinalEvaluation(msgspec.Struct):
    """Returns of the best checkpoint and of the last one (`last_…`), on seeds that no earlier evaluation used."""

    checkpoint: str
    return_mean: _Real
    episodes: _Whole = 0
    return_std: _Real = 0.0
    return_min: _Real = 0.0
    return_max: _Real = 0.0
    last_checkpoint: str = ""
    last_return_mean: _Real = 0.0
    last_return_std: _Real = 0.0
    last_return_min: _Real = 0.0
    last_return_max: _Real = 0.0
    success_rate: _Real = 0.0
    last_success_rate: _Real = 0.0


class Evaluation(msgspec.Struct, rename={"return_mean": "eval/return_mean"}):
    """An evaluation during training."""

    return_mean: _Real


#: The required content of records by kind; records of other kinds may contain anything.
KINDS: Mapping[str, type[msgspec.Struct]] = {
    "start": Start,
    "evaluation": Evaluation,
    "episodes": Episodes,
    "final_eval": FinalEvaluation,
    "end": End,
    "error": Error,
}
#: Metrics that are read by name, and the largest whole number among metrics.
NAMED = ("perf/wall_s", "perf/env_steps_per_s", "rollout/return_mean")
LARGEST = 2**63 - 1


#: Six times as fast as `json`, which matters for comparisons that read a quarter of a million lines.
_PARSER = msgspec.json.Decoder(Record)


def parse_record(line: bytes) -> Record | None:
    """Return the record in a line, or None if the line is incomplete, invalid or not a record."""
    record = _record(line) if line.endswith(b"\n") else None
    return record if record is not None and is_valid(record.kind, record.data) else None


def _record(line: bytes) -> Record | None:
    try:
        return _PARSER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # not a record, or one with a NaN of a diverging run, which msgspec refuses and `json` accepts
    try:
        return msgspec.convert(parse_json(line), Record)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None


def is_valid(kind: str, data: dict[str, object]) -> bool:
    """Return whether a record of this kind has everything that its readers need."""
    if kind in ("metrics", "evaluation") and not _fits_columns(data):
        return False
    if kind not in KINDS:
        return True
    try:
        msgspec.convert(data, KINDS[kind])
        return kind != "episodes" or _columns_match(data)
    except (msgspec.ValidationError, RecursionError):
        return False


def _fits_columns(data: dict[str, object]) -> bool:
    """Return whether these metrics fit into columns of numbers; a schema would be slower for the many metrics."""
    for value in data.values():
        if value.__class__ is int and not -LARGEST <= value <= LARGEST:
            return False
    return all(isinstance(data.get(name, 0.0), float | int) for name in NAMED)


_REMEDY = "bring back the file, or delete the run with 'rlplug runs rm'"
_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Source(TypedDict):
    """A copy of a source file: its original path, its name in the run, its SHA-256."""

    file: str
    copy: str
    sha256: str


class RunConfig(TypedDict, total=False):
    """The content of a `config.json`; the plan checks the options."""

    name: Required[str]
    uid: Required[str]
    group: Required[str]
    algorithm: Required[str]
    env: Required[str]
    options: Required[dict[str, Any]]
    created: Required[_Moment]
    sources: Mapping[str, Source]
    modules: Mapping[str, str]
    origins: Mapping[str, str]
    environment: Environment | None
    dataset: Mapping[str, Any]
    unnamed: str
    exchanges: list[dict[str, Any]]
    seal: str


class Shown(msgspec.Struct):
    """The options that commands show or compare without a plan."""

    seed: _Whole | None = None
    total_timesteps: _Whole | None = None
    wrap: list[str] = []
    eval_wrap: list[str] | None = None
    controller: list[str] = []
    log: list[str] = []
    init_parts: list[str] = []
    freeze: list[str] = []


def read_config(path: Path) -> RunConfig:
    """Return the content of a `config.json`.

    Raises:
        BadFile: it cannot be read, or a required entry is missing or has a wrong type.
    """
    try:
        config: RunConfig = from_json(path)
        as_type(config, RunConfig, path)
        as_type(config["options"], Shown, path)
    except BadFile as error:
        raise BadFile(path, f"{error.reason}; {_REMEDY}") from error
    return config
