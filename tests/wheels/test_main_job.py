"""The main job from the wheels, outside the repository: train, look at the run, find it in MLflow."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def trained(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which a3c has trained for a moment, with two worker processes."""
    place = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("RLPLUG_MLFLOW_DRAIN_SECONDS", "300")  # a slow machine is no failure
        few = ["--total-timesteps", "4000", "--eval-episodes", "5", "--final-eval-episodes", "5"]
        command = [python, "-m", "rlplug_cli"]
        done = called([*command, "run", "a3c", "CartPole-v1", *few])
        (place / "stderr.txt").write_text(done.stderr, encoding="utf-8")
        if "rlplug sync" in done.stderr:  # the process that sends was too slow, or the system ended it
            called([*command, "sync", *map(str, (place / "runs").iterdir())])
    return place


def called(words: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def journal(place: Path) -> list[dict[str, Any]]:
    (run,) = (place / "runs").iterdir()
    return [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_run_directory_is_whole(trained: Path) -> None:
    records = journal(trained)
    assert [record["seq"] for record in records] == list(range(records[0]["seq"], records[0]["seq"] + len(records)))
    assert {"start", "metrics", "evaluation", "checkpoint", "final_eval", "end"} <= {
        record["kind"] for record in records
    }
    assert records[-1]["kind"] == "end"


def test_mlflow_has_the_run_with_its_curves_complete(trained: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{trained / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("CartPole-v1")
    assert experiment is not None, (trained / "stderr.txt").read_text(encoding="utf-8")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["seed"] == "1"

    written: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in journal(trained):
        if record["kind"] == "metrics":
            for key, value in record["data"].items():
                written[key].append((record["step"], value))
    assert written
    for key, points in written.items():
        history = client.get_metric_history(run.info.run_id, key)
        assert sorted((metric.step, metric.value) for metric in history) == sorted(points), key
