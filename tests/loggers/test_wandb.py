"""The logger of Weights & Biases writes all metrics to offline files. `nox -s wandb` runs this."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

wandb = pytest.importorskip("wandb")

from wandb.proto import wandb_internal_pb2  # noqa: E402  # after `importorskip`

from rlplug_cli.loggers.following import finite_metrics  # noqa: E402
from rlplug_core import plugins  # noqa: E402
from rlplug_core.runs.api import Run, resume, train  # noqa: E402
from rlplug_core.runs.journal import read  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS: dict[str, Any] = {
    "total_timesteps": 400, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 2, "log_every": 50,
    "log": ("wandb",),
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    plugins.refresh()
    return train("a2c", "rlplug_core.testing.envs:Chain", OPTIONS, out=tmp_path, name="one")


def records(file: Path) -> Iterator[Any]:
    """The records of an offline run: wandb's messages in a log with the format of LevelDB, in blocks of 32 KiB.

    A frame has a checksum (4 bytes), a length (2) and a kind (1): complete, first, middle, last. wandb 0.31 reads these
    files in a program that only uploads, and has no reader for Python.
    """
    data = file.read_bytes()
    place = 7
    parts = b""
    assert data[:4] == b":W&B"
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def wandb_metrics(run: Run) -> tuple[list[tuple[int, str, float]], list[Any]]:
    """The metrics (step, name, value) in wandb's files, and the messages about the run."""
    metrics, runs = [], []
    for file in sorted(run.path.glob("wandb/offline-run-*/*.wandb")):
        for record in records(file):
            if record.WhichOneof("record_type") == "run":
                runs.append(record.run)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                step = int(row.pop("env_step"))
                metrics += [(step, name, value) for name, value in row.items() if not name.startswith("_")]
    return metrics, runs


def journal_metrics(run: Run) -> list[tuple[int, str, float]]:
    return [
        (record.step, name, value) for record in read(run.journal) for name, value in finite_metrics(record).items()
    ]


def test_wandb_has_all_metrics_without_a_login(run: Run) -> None:
    metrics, (message, *_) = wandb_metrics(run)
    assert sorted(metrics) == sorted(journal_metrics(run))
    assert message.run_id == run.config["uid"]
    assert message.display_name == "one"
    config = {item.key: json.loads(item.value_json) for item in message.config.update}
    assert config["algorithm"] == "a2c"


def test_resumed_run_has_the_same_wandb_id(run: Run) -> None:
    before = len(wandb_metrics(run)[0])
    start_time = time.time()
    while int(time.time()) == int(start_time):  # wandb names its directories by the second
        time.sleep(0.01)
    resume(run, total_timesteps=600)
    metrics, runs = wandb_metrics(run)
    assert {message.run_id for message in runs} == {run.config["uid"]}
    added = metrics[before:]
    assert min(step for step, _, _ in added) > 400
    assert max(step for step, _, _ in added) == 600
