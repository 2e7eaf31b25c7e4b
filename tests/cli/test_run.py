"""The main commands: train, list, evaluate, stop and resume a run, and find it in MLflow."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.warm import Fork
from tests.conftest import Warm
from tests.waiting import PATIENCE, until, without_notices

SHORT = ("--eval-episodes", "2", "--final-eval-episodes", "3", "--eval-every", "300")

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def trained_directory(tmp_path_factory: pytest.TempPathFactory, empty_store: Path, warm: Warm) -> Path:
    """A working directory with a run of a2c that ended at step 400 and was resumed to 600."""
    here = tmp_path_factory.mktemp("trained")
    shutil.copy(empty_store, here / "mlflow.db")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RLPLUG_", "MLFLOW_"))}
    environment["RLPLUG_MLFLOW_DRAIN_SECONDS"] = "200"  # a slow machine must not fail the test
    options = (*SHORT, "--learning-rate", "0.001", "--set", "ent_coef=0.02", "--name", "one")
    commands = {
        "out.txt": ("run", "a2c", "CartPole-v1", *options, "--total-timesteps", "400"),
        "resumed.txt": ("resume", "one", "--total-timesteps", "600"),
    }
    for file, words in commands.items():
        command = Fork(warm.socket, words, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = command.communicate(PATIENCE)
        assert (command.returncode, without_notices(error)) == (0, "")
        (here / file).write_text(out)
        command.close()
    return here


@pytest.fixture
def here(trained_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained_directory)
    return trained_directory


def journal(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def test_run_prints_final_evaluation_path_and_mlflow_command(here: Path) -> None:
    title, policy, critic, *progress, final, best, path, mlflow = (here / "out.txt").read_text().splitlines()
    assert policy.split()[:2] == ["network", "policy"]
    assert critic.split()[0] == "critic"
    assert title.startswith("a2c · CartPole-v1 · seed 1 · total_timesteps=400 ent_coef=0.02 learning_rate=0.001 ")
    assert any("400/400 steps" in line and "evaluation" in line for line in progress)
    assert final.startswith("final evaluation  last weights  mean return ")
    assert best.strip().startswith("best checkpoint  mean return ")
    assert "over 3 greedy episodes" in final
    assert path == "run      runs/one"
    assert mlflow == "mlflow   rlplug ui"
    resumed = (here / "resumed.txt").read_text()
    assert "resuming one" in resumed
    assert "600/600 steps" in resumed


def test_options_are_recorded_with_origins(here: Path) -> None:
    config = json.loads((here / "runs/one/config.json").read_text())
    assert (config["options"]["learning_rate"], config["origins"]["learning_rate"]) == (0.001, "option")
    assert (config["options"]["ent_coef"], config["origins"]["ent_coef"]) == (0.02, "set")
    assert (config["options"]["seed"], config["origins"]["seed"]) == (1, "default")
    assert config["options"]["net.hidden"] == [64, 64]


def test_mlflow_has_one_run_with_the_curves_of_both_parts(here: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{here / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("CartPole-v1")
    assert experiment is not None
    (entry,) = client.search_runs([experiment.experiment_id])
    assert (entry.info.status, entry.info.run_name) == ("FINISHED", "one")
    recorded = [record for record in journal(here / "runs/one") if record["kind"] in ("metrics", "evaluation")]
    keys = {key for record in recorded for key in record["data"]} - {"best"}
    assert {"rollout/return_mean", "eval/return_mean", "loss/policy", "perf/env_steps_per_s"} <= keys
    for key in keys:
        points = sorted(
            (point.step, point.value, point.timestamp) for point in client.get_metric_history(entry.info.run_id, key)
        )
        assert points == sorted((r["step"], r["data"][key], r["time"]) for r in recorded if key in r["data"])
    assert entry.data.params["learning_rate"] == "0.001"
    assert entry.data.params["gamma"] == "0.99"
    assert {"rlplug.final_eval", "rlplug.gradients"} <= entry.data.tags.keys()
    names = {file.path for file in client.list_artifacts(entry.info.run_id)}
    assert names == {"config.json", "episodes.parquet", "checkpoints"}


def test_runs_command_shows_the_run(here: Path, rlplug: Callable[..., Any]) -> None:
    (row,) = json.loads(rlplug("runs", "--json").out)
    assert (row["name"], row["status"], row["steps"], row["seed"]) == ("one", "finished", 600, 1)
    assert row["best"] is not None
    assert row["final_eval"]["episodes"] == 3
    line = rlplug("runs").out.splitlines()[1]
    assert line.split()[:6] == ["one", "finished", "a2c", "CartPole-v1", "1", "600/600"]


def test_evaluate_is_repeatable_and_leaves_the_run_unchanged(here: Path, rlplug: Callable[..., Any]) -> None:
    before = (here / "runs/one/journal.jsonl").read_bytes()
    first = json.loads(rlplug("evaluate", "one", "--episodes", "4", "--seed", "5", "--json").out)
    again = json.loads(rlplug("evaluate", "runs/one", "--episodes", "4", "--seed", "5", "--json").out)
    assert first["returns"] == again["returns"]
    assert len(first["returns"]) == 4
    assert "over 4 greedy episodes" in rlplug("evaluate", "one", "--episodes", "4", "--checkpoint", "final").out
    assert (here / "runs/one/journal.jsonl").read_bytes() == before


def test_finished_run_needs_more_steps_to_resume(here: Path, rlplug: Callable[..., Any]) -> None:
    result = rlplug("resume", "one")
    assert result.code == 2
    assert "is finished at step 600" in result.err
    assert "--total-timesteps" in result.err


def test_running_run_is_not_resumed(here: Path, rlplug: Callable[..., Any]) -> None:
    with open(here / "runs/one/lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = rlplug("resume", "one", "--total-timesteps", "1000")
        assert rlplug("runs").out.splitlines()[1].split()[1] == "running"
    assert result.code == 2
    assert "is being written by process" in result.err
    assert result.err.count("\n") == 1


def test_damaged_checkpoint_is_skipped_with_a_warning(
    trained_directory: Path, place: Path, rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(
        trained_directory / "runs/one", place / "runs/one", ignore=shutil.ignore_patterns("mlflow*", "lock")
    )
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    (final,) = (place / "runs/one/checkpoints").glob("final-*")
    (final / "learner.safetensors").write_bytes(b"damaged")
    result = rlplug("resume", "one", "--total-timesteps", "700")
    assert result.code == 0, result.err
    assert "final-000000000600 is damaged: learner.safetensors has changed" in result.err
    assert "falling back to step-" in result.err
    for path in (place / "runs/one/checkpoints").glob("*/learner.safetensors"):
        path.write_bytes(b"damaged")
    result = rlplug("resume", "one", "--total-timesteps", "800")
    assert result.code == 1
    assert "holds no readable final or step checkpoint" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err


def test_sync_does_not_send_records_again(here: Path, rlplug: Callable[..., Any]) -> None:
    assert rlplug("sync", "one").out.startswith("sent 0 records; all of this run is in MLflow at sqlite:///")


def test_json_is_the_only_output_on_stdout(process: Callable[..., Any], place: Path) -> None:
    words = ("run", "a2c", "CartPole-v1", *SHORT, "--total-timesteps", "600", "--json", "--out", "elsewhere")
    done = process(*words, RLPLUG_DISABLED_PLUGINS="mlflow")
    result = json.loads(done.out)
    assert (result["status"], result["mlflow"]) == ("finished", None)
    assert Path(result["run"]).parent == place / "elsewhere"
    assert result["final_eval"]["episodes"] == 3
    assert "600/600 steps" in done.err
    assert (Path(result["run"]) / "episodes.parquet").exists()


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [
        ("a2c", signal.SIGTERM),
        pytest.param("a2c", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("a3c", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_signal_saves_a_checkpoint_and_resume_continues(
    place: Path, fork: Callable[..., Fork], process: Callable[..., Any], algorithm: str, number: signal.Signals
) -> None:
    words = ("--total-timesteps", "100000000", "--name", "one", "--log-every", "500", "--eval-episodes", "2")
    off = ("-P", "no:mlflow")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    running = fork("run", algorithm, "CartPole-v1", *words, *off, **streams, start_new_session=True)
    path = place / "runs/one/journal.jsonl"
    until(lambda: path.exists() and path.read_text().count('"kind":"metrics"') > 2, running)
    children = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, number)
    _, error = running.communicate(timeout=PATIENCE)
    assert running.returncode == 128 + number, error
    assert without_notices(error).count("\n") == 1
    assert f"stopped by {number.name}" in error
    assert f"rlplug resume {place / 'runs/one'}" in error
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive
    stopped = journal(place / "runs/one")[-1]
    assert stopped["data"] == {"status": "interrupted"}

    result = process("resume", "one", "--total-timesteps", str(stopped["step"] + 400), *off)
    assert result.code == 0, result.err
    assert "resuming one" in result.out
    assert journal(place / "runs/one")[-1]["data"] == {"status": "finished"}


@pytest.mark.slow
def test_two_simultaneous_first_runs_are_both_in_mlflow(place: Path, fork: Callable[..., Fork]) -> None:
    words = ("run", "a2c", "CartPole-v1", *SHORT, "--total-timesteps", "600")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    environment = {**os.environ, "RLPLUG_MLFLOW_DRAIN_SECONDS": "200"}
    started = [
        fork(*words, "--seed", str(seed), "--name", f"seed{seed}", env=environment, **streams) for seed in range(2)
    ]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 2, errors
    assert list(map(without_notices, errors)) == [""] * 2
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("CartPole-v1")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {(run.data.params["seed"], run.info.status) for run in runs} == {(str(s), "FINISHED") for s in range(2)}
    assert len({run.data.tags["rlplug.group"] for run in runs}) == 1


ALGORITHM = '''
"""A2C with an unused option."""
from dataclasses import dataclass
from rlplug_algos.policy_gradient.a2c import A2C, A2CConfig

@dataclass(frozen=True)
class MineConfig(A2CConfig):
    extra: int = 3  # does nothing

class Mine(A2C):
    Config = MineConfig
'''

ENVIRONMENT = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, self.steps / 10, np.float32), float(action), self.steps >= 10, False, {}

class Broken(gymnasium.Env):
    def __init__(self):
        raise OSError("no display")
"""


def test_files_can_define_algorithm_and_environment(process: Callable[..., Any], place: Path) -> None:
    (place / "algo.py").write_text(ALGORITHM)
    (place / "env.py").write_text(ENVIRONMENT)
    off = {"RLPLUG_DISABLED_PLUGINS": "mlflow"}
    assert "--extra INTEGER" in process("run", "./algo.py:Mine", "--help", **off).out
    words = (*SHORT, "--total-timesteps", "600", "--extra", "4", "--name", "one")
    result = process("run", "./algo.py:Mine", "./env.py:Corridor", *words, **off)
    assert result.code == 0, result.err
    config = json.loads((place / "runs/one/config.json").read_text())
    assert config["options"]["extra"] == 4
    (place / "sub").mkdir()
    result = process("evaluate", str(place / "runs/one"), "--episodes", "2", "--json", **off)
    assert json.loads(result.out)["length_mean"] == 10
    result = process("run", "./algo.py:Mine", "./env.py:Broken", *SHORT, **off)
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert "env.py:Broken' cannot be made: OSError: no display" in result.err
