"""The records of one request to MLflow, and the form that keys and values have there."""

from __future__ import annotations

import json
import math
import posixpath
import re
from dataclasses import dataclass, field
from typing import Any

from rlplug_cli.loggers.following import metrics
from rlplug_core.runs import JournalRecord

#: MLflow's limit on the metrics of one request.
BATCH = 1000
#: The tag with the error of a failed run.
ERROR = "rlplug.error"


@dataclass
class Batch:
    """The content of one request; `cursor` and `time` are of its last record, which is `end` if it ends the run."""

    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    cursor: int = 0
    time: int = 0
    end: JournalRecord | None = None
    resumed: bool = False

    def add(self, record: JournalRecord) -> None:
        """Add a record; a damaged one is skipped, so that it does not block later records."""
        try:
            metrics = metrics_of(record)
            tags = tags_of(record)
        except (KeyError, TypeError, ValueError, OverflowError):
            metrics = []
            tags = {}
        self.metrics += metrics
        self.tags |= tags
        self.resumed |= record.kind == "start" and bool(record.data.get("resumed"))
        self.cursor = record.seq
        self.time = record.time
        self.end = record if record.kind == "end" else None


def metrics_of(record: JournalRecord) -> list[tuple[str, float, int, int]]:
    # MLflow stores an infinity as 1.8e308, which would spoil the axis of every chart.
    return [
        (key_of(name), value, record.step, record.time)
        for name, value in metrics(record).items()
        if not math.isinf(value)
    ]


def tags_of(record: JournalRecord) -> dict[str, str]:
    data = record.data
    if record.kind == "tag":
        return {key_of(key): text_of(value) for key, value in data.items()}
    if record.kind == "start" and data.get("limit"):  # not as a parameter: those cannot change
        return {
            "rlplug.total_timesteps": str(data["limit"]),
            "rlplug.rescaled": str(bool(data.get("rescale"))).lower(),
        }
    if record.kind == "exchange":
        return {f"rlplug.exchange.{data['chunk']}": exchange_text(record)}
    if record.kind == "error":
        return {ERROR: text_of(f"{data['type']}: {data['message']}")}
    if record.kind == "evaluation" and data.get("best"):
        return {"rlplug.best": f"{data['eval/return_mean']:.6g} at step {record.step}"}
    return final_tags(data) if record.kind == "final_eval" else {}


def final_tags(data: dict[str, Any]) -> dict[str, str]:
    """Return the tags of a final evaluation."""
    spread = data.get("return_std", math.nan)
    count = data.get("episodes", 0)
    scores_text = f"{data['return_mean']:.6g} ± {spread:.3g} over {count} episodes"
    tags = {
        "rlplug.final_eval": scores_text,
        "rlplug.final_eval.checkpoint": text_of(data["checkpoint"]),
    }
    if "last_return_mean" in data:
        last = data.get("last_return_std", math.nan)
        tags["rlplug.final_eval.last"] = f"{data['last_return_mean']:.6g} ± {last:.3g}"
    return tags


def exchange_text(record: JournalRecord) -> str:
    """Return a sentence about an exchange with another member of a population."""
    data = record.data
    values = ", ".join(f"{name} = {value}" for name, value in data["options"].items())
    source = f"state of {data['source']}" if data["source"] else "its own state"
    return text_of(f"step {record.step:,}: {source}{f', {values}' if values else ''}")


def key_of(name: str) -> str:
    """Return a name that MLflow accepts; it must look like a relative path."""
    key = re.sub(r"[^\w\-. /:]", "_", name)[:250] or "_"
    return (
        key if posixpath.normpath(key) == key and key[0] not in "/." else re.sub(r"[/.]", "_", key)
    )


def text_of(value: object) -> str:
    """Return a value as text of at most 6,000 characters, because MLflow refuses longer parameters."""
    return (value if isinstance(value, str) else json.dumps(value))[:6000]
