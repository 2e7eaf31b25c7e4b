"""The history of a run for a comparison: its options, status, curves and final scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from rlplug_cli.compare.statistics import Floats
from rlplug_core.errors import BadFile, UsageError
from rlplug_core.runs import (
    CURVE_KINDS,
    Curve,
    JournalRecord,
    RunDirectory,
    curves_of,
    extensions,
    read_journal,
)

#: The metric of evaluations, and the metrics for the axes of time and updates.
RETURN = "eval/return_mean"
SECONDS = "perf/wall_s"
UPDATES = "perf/updates"
#: The metric of each axis; "" for env steps.
AXES = {"steps": "", "seconds": SECONDS, "updates": UPDATES}
#: The keys that comparisons keep of a configuration, besides options and origins, and of records other than those of
#: curves. The rest takes memory: a `start` record holds the whole configuration.
CONFIG_KEYS = ("algorithm", "env", "created", "sources", "dataset")
EVENT_KEYS = {"limit", "rescale", "status", "checkpoint", "return_mean", "last_return_mean"}
#: The name of the run's extensions among its options.
EXTENDED = "extended"


@dataclass(frozen=True, eq=False)
class History:
    """One run, read once; `env` and `algorithm` are names, the newest ones if their files were moved.

    `options` are the run's options, with its last total and its extensions.
    """

    path: Path
    config: dict[str, Any]
    options: dict[str, Any]
    env: str
    algorithm: str
    curves: dict[str, Curve]
    events: tuple[JournalRecord, ...]

    @property
    def seed(self) -> int:
        return int(self.options["seed"])

    @property
    def is_finished(self) -> bool:
        """Return whether the run's last record says that it is finished."""
        last = self.events[-1] if self.events else None
        return last is not None and last.kind == "end" and last.data["status"] == "finished"

    @cached_property
    def scores(self) -> dict[str, float]:
        """Return the final mean return of the `last` weights, and of the `best` checkpoint if there is one.

        If the final evaluation did not include the last weights, their score is the last evaluation in training. An
        unfinished run has no scores, even if it had a final evaluation before it was extended.
        """
        if not self.is_finished:
            return {}
        result = {}
        if RETURN in self.curves:
            result["last"] = float(self.curves[RETURN].values[-1])
        for record in self.events:
            if record.kind == "final_eval":
                kind = str(record.data["checkpoint"]).rpartition("-")[0]
                result["best" if kind == "best" else "last"] = float(record.data["return_mean"])
                if "last_return_mean" in record.data:
                    result["last"] = float(record.data["last_return_mean"])
        return result

    def points(self, metric: str, axis: str) -> tuple[Floats, Floats]:
        """Return a metric over `steps`, `seconds` or `updates` as two arrays `[T]`, empty if it was never recorded."""
        curve = self.curves.get(metric)
        axis_curve = self.curves.get(AXES[axis])
        if curve is None or (axis_curve is None and axis != "steps"):
            return np.empty(0), np.empty(0)
        steps = curve.steps.astype(np.float64)
        return (
            steps if axis_curve is None else np.interp(steps, axis_curve.steps, axis_curve.values)
        ), curve.values


def total_with_extensions(
    first: int,
    starts: Iterable[Mapping[str, Any]],
) -> tuple[int, str]:
    """Return the last total of a run, and its extensions or `none`.

    An extension is `2000:5000` if schedules kept the old total, and `2000:5000:rescale` if they were stretched.
    """
    total = first
    spans = list[tuple[int, int, bool]]()
    for limit, stretched in extensions(first, starts):
        # Two extensions without stretching are one.
        start = spans.pop()[0] if spans and not (spans[-1][2] or stretched) else total
        spans += [(start, limit, stretched)] if limit != start else []
        total = limit
    texts = [f"{start}:{end}{':rescale' * stretched}" for start, end, stretched in spans]
    return total, ",".join(texts) or "none"


def history(path: Path, metrics: Collection[str]) -> History:
    """Read a run's configuration, and the records of its journal that `metrics` and final scores need.

    Raises:
        UsageError: the run's configuration cannot be read.
    """
    try:
        config = RunDirectory(path).config
    except BadFile as error:
        raise UsageError(f"{error}; or leave this run out") from error
    journal = path / "journal.jsonl"
    only_evaluations = all(name.startswith("eval/") for name in metrics)
    kinds = (*(("evaluation",) if only_evaluations else CURVE_KINDS), "start", "final_eval", "end")
    records = read_journal(journal, kinds=kinds)
    events: list[JournalRecord] = []
    curves = curves_of(_split_records(records, events), tuple(dict.fromkeys((RETURN, *metrics))))
    origins = _share_origins(tuple(config.get("origins", {}).items()))
    return History(
        path,
        {name: value for name, value in config.items() if name in CONFIG_KEYS}
        | {"origins": origins},
        _options(config["options"], events),
        env=str(config["env"]),
        algorithm=str(config["algorithm"]),
        curves=curves,
        events=tuple(events),
    )


def _split_records(
    records: Iterable[JournalRecord],
    events: list[JournalRecord],
) -> Iterator[JournalRecord]:
    """Yield the records of curves one by one, since a long journal has millions, and append the others to `events`."""
    for record in records:
        if record.kind in CURVE_KINDS:
            yield record
        else:
            data = {name: record.data[name] for name in EVENT_KEYS & record.data.keys()}
            events.append(replace(record, data=data))


def _options(
    first: Mapping[str, Any],
    events: Iterable[JournalRecord],
) -> dict[str, Any]:
    """Return a run's options with its last total and its extensions; equal names are one object in all runs."""
    starts = [record.data for record in events if record.kind == "start"]
    total, how = total_with_extensions(int(first.get("total_timesteps") or 0), starts)
    options = {intern(name): value for name, value in first.items()}
    options["total_timesteps"] = total
    options[EXTENDED] = how
    return options


@lru_cache(maxsize=1000)
def _share_origins(origins: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return origins as a dictionary; equal ones are one object, because thousands of runs may have the same."""
    return dict(origins)
