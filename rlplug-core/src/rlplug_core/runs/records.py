"""One line of a journal: which lines are a record, and what it must say, so that no reader meets a wrong type.

What is unsound counts as damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from rlplug_core.loop.episode_stats import INFO

#: Numbers that columns of 64 bits hold.
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
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
    """The beginning of a process's work, and what it takes back: all that was measured behind the record `after`."""

    after: _Whole = 0
    limit: _Whole = 0
    rescale: bool = False


class End(msgspec.Struct):
    """The way in which a process left the run."""

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


def _columns(data: Mapping[str, Any]) -> bool:
    """Return whether what environments said of these episodes are columns of the same length, of numbers or None."""
    extra = [column for name, column in data.items() if name.startswith(INFO)]
    numbers = msgspec.convert(extra, list[list[float | None]])
    return all(len(column) == len(data["steps"]) for column in numbers)


class FinalEvaluation(msgspec.Struct):
    """Returns of a checkpoint on seeds that no evaluation used."""

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
    """An evaluation while the run trains."""

    return_mean: _Real


#: What records of a kind must hold; a kind that is not named may hold anything.
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


#: Six times as fast as `json`; a comparison reads a quarter of a million lines.
_PARSER = msgspec.json.Decoder(Record)


def parsed(line: bytes) -> Record | None:
    """The record that a line holds, or None where it is torn, unsound or no record at all."""
    record = _record(line) if line.endswith(b"\n") else None
    return record if record is not None and sound(record.kind, record.data) else None


def _record(line: bytes) -> Record | None:
    try:
        return _PARSER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # a number that is none, which msgspec refuses and a diverging run may record; or no record at all
    try:
        return msgspec.convert(json.loads(line), Record)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None


def sound(kind: str, data: dict[str, object]) -> bool:
    """Return whether a record of this kind holds what its readers take for granted."""
    if kind in ("metrics", "evaluation") and not _numbers(data):
        return False
    if (wanted := KINDS.get(kind)) is None:
        return True
    try:
        msgspec.convert(data, wanted)
        return kind != "episodes" or _columns(data)
    except (msgspec.ValidationError, RecursionError):
        return False


def _numbers(data: dict[str, object]) -> bool:
    """Return whether columns can hold these metrics; most of a journal, so that no schema is asked."""
    for value in data.values():
        if value.__class__ is int and not -LARGEST <= value <= LARGEST:
            return False
    return all(isinstance(data.get(name, 0.0), float | int) for name in NAMED)
