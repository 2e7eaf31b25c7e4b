"""A run of the installed wheels outside the repository has a complete journal, which MLflow also has."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def place(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a short run of a3c with worker processes."""
    place = tmp_path_factory.mktemp("outside")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("RLPLUG_MLFLOW_DRAIN_SECONDS", "300")  # a slow machine must not fail the test
        few = ["--total-timesteps", "4000", "--eval-episodes", "5", "--final-eval-episodes", "5"]
        command = [python, "-m", "rlplug_cli"]
        done = call([*command, "run", "a3c", "CartPole-v1", *few])
        (place / "stderr.txt").write_text(done.stderr, encoding="utf-8")
        if "rlplug sync" in done.stderr:  # the sending process was too slow or killed
            call([*command, "sync", *map(str, (place / "runs").iterdir())])
    return place


def call(words: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def journal(place: Path) -> list[dict[str, Any]]:
    (run,) = (place / "runs").iterdir()
    return [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def test_journal_is_complete(place: Path) -> None:
    records = journal(place)
    assert [record["seq"] for record in records] == list(range(records[0]["seq"], records[0]["seq"] + len(records)))
    assert {"start", "metrics", "evaluation", "checkpoint", "final_eval", "end"} <= {
        record["kind"] for record in records
    }
    assert records[-1]["kind"] == "end"


def test_mlflow_has_all_metrics_of_the_run(place: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("CartPole-v1")
    assert experiment is not None, (place / "stderr.txt").read_text(encoding="utf-8")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["seed"] == "1"

    written: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in journal(place):
        if record["kind"] == "metrics":
            for key, value in record["data"].items():
                written[key].append((record["step"], value))
    assert written
    for key, points in written.items():
        history = client.get_metric_history(run.info.run_id, key)
        assert sorted((metric.step, metric.value) for metric in history) == sorted(points), key
