"""The main commands on Windows or with its simulation (`disguise/sitecustomize.py`): train, stop, resume, sweep, play.

`nox -s portable` runs it. The tests share one folder, and use the runs of earlier tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

TINY = ["--total-timesteps", "600", "--eval-every", "300", "--eval-episodes", "1", "--final-eval-episodes", "1"]
#: The stop signal, and the exit codes that it gives: Ctrl-Break on Windows, else Ctrl-C.
STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)
STOPPED = (130, 149)
PACKAGES = ("rlplug_core", "rlplug_algos", "rlplug_envs", "rlplug_cli")
#: Imports every module, and prints those that fail for another reason than a missing package.
IMPORTS = """
import importlib, os, pkgutil, sys
for package in sys.argv[1:]:
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not info.name.endswith("__main__"):
            try:
                importlib.import_module(info.name)
            except ModuleNotFoundError as error:
                if error.name not in ("ray", "wandb", "envpool"):
                    print(info.name, error)
            except Exception as error:
                print(info.name, repr(error))
import rlplug_core.config.locks
print(rlplug_core.config.locks.fcntl, rlplug_core.config.locks.os.name)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


def windows_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process with the simulated Windows and a long timeout of MLflow."""
    timeout = {"RLPLUG_MLFLOW_DRAIN_SECONDS": "240"}  # a slow machine must not fail the test
    if os.name == "nt":
        return {**os.environ, **timeout}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MLFLOW"))}
    paths = {"PYTHONPATH": str(Path(__file__).parent / "disguise"), "XDG_STATE_HOME": str(folder / "state")}
    return {**kept, **paths, **timeout, "XDG_CACHE_HOME": str(folder / "cache"), "NUMBA_DISABLE_JIT": "1"}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "rlplug_cli", *words]
    pipe = subprocess.PIPE
    group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    return subprocess.Popen(
        command, cwd=folder, env=windows_environment(folder), stdout=pipe, stderr=pipe, text=True, creationflags=group
    )


def rlplug(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command and return its output and its messages."""
    process = start(folder, *words)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, (words, out, err)
    assert "Traceback" not in err, err
    return out, err


def weights(run: Path) -> bytes:
    (final,) = (run / "checkpoints").glob("final-*")
    return b"".join(path.read_bytes() for path in sorted(final.rglob("*.safetensors")))


def test_every_module_imports(folder: Path) -> None:
    words = [sys.executable, "-P", "-c", IMPORTS, *PACKAGES]
    done = subprocess.run(words, env=windows_environment(folder), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["None nt"], done.stdout


def test_run_trains_and_is_sent_to_mlflow(folder: Path) -> None:
    rlplug(folder, "run", "ppo", "CartPole-v1", *TINY, "--name", "first")
    assert json.loads((folder / "runs" / "first" / "mlflow.json").read_bytes())["cursor"] > 0


def test_stopped_run_resumes_to_the_same_weights(folder: Path) -> None:
    words = ("run", "dqn", "CartPole-v1", "--total-timesteps", "4000", "--checkpoint-every", "500", "-P", "no:mlflow")
    rlplug(folder, *words, "--name", "complete")
    process = start(folder, *words, "--name", "stopped")
    until(lambda: any((folder / "runs" / "stopped" / "checkpoints").glob("step-*")), process)
    process.send_signal(STOP)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in STOPPED, err
    rlplug(folder, "resume", "runs/stopped", "-P", "no:mlflow")
    assert weights(folder / "runs" / "stopped") == weights(folder / "runs" / "complete")


def test_only_one_process_writes_a_run(folder: Path) -> None:
    words = ("run", "dqn", "CartPole-v1", "--total-timesteps", "1000000", "--checkpoint-every", "500")
    process = start(folder, *words, "-P", "no:mlflow", "--name", "held")
    until(lambda: any((folder / "runs" / "held" / "checkpoints").glob("step-*")), process)
    _, err = rlplug(folder, "resume", "runs/held", "-P", "no:mlflow", code=2)
    assert f"is being written by process {process.pid}" in err
    assert "running" in rlplug(folder, "runs")[0]
    process.kill()
    process.communicate()
    assert "killed" in rlplug(folder, "runs")[0]
    rlplug(folder, "runs", "rm", "held", "--yes")
    assert not (folder / "runs" / "held").exists()


@pytest.mark.parametrize(
    "words",
    [
        "a3c CartPole-v1",
        "impala CartPole-v1 --actors 2",
        "ppo CartPole-v1 --env-workers 2 --worker-timeout 900",
        "ppo CartPole-v1 --learners 2",
    ],
)
def test_worker_processes_are_spawned(words: str, folder: Path) -> None:
    name = words.replace(" ", "-")
    rlplug(folder, "run", *words.split(), *TINY, "--name", name, "-P", "no:mlflow")
    end = json.loads((folder / "runs" / name / "journal.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert end["data"]["status"] == "finished"


def test_killed_sweep_continues(folder: Path) -> None:
    words = ("sweep", "a2c", "CartPole-v1", "--gamma", "0.9,0.99", "--seeds", "1", "--jobs", "2", "--name", "swept")
    rest = ("--total-timesteps", "20000", "-P", "no:mlflow")
    process = start(folder, *words, *rest)
    until(lambda: len([*(folder / "runs" / "swept").glob("*/journal.jsonl")]) == 2, process)
    process.kill()
    process.communicate()
    out, err = rlplug(folder, *words, *rest)
    assert "2 of 2 finished" in out + err


def test_films_comparisons_exports_and_shared_agents(folder: Path) -> None:
    rlplug(folder, "play", "runs/first", "--episodes", "1", "--video", "film.gif", "--every", "20")
    rlplug(
        folder, "play", "runs/first", "--episodes", "1", "--video", "film.gif", "--every", "20"
    )  # overwrites the first
    rlplug(folder, "compare", "runs/first", "runs/complete", "--html", "page.html", "--csv", "rows.csv")
    rlplug(folder, "export", "runs/first", "--out", "policy")
    rlplug(folder, "push", "runs/first", "shared")
    rlplug(folder, "pull", "shared", "--out", "agent")
    out, _ = rlplug(folder, "evaluate", "agent", "--episodes", "2")
    assert "mean return" in out
    assert (folder / "film.gif").stat().st_size > 0


@pytest.mark.parametrize(
    "words",
    ["list", "info ppo", "info CartPole-v1", "plugins", "search ppo", "show runs/first", "check a2c"],
)
def test_other_commands(words: str, folder: Path) -> None:
    rlplug(folder, *words.split())


def test_study_finishes(folder: Path) -> None:
    rlplug(folder, "tune", "a2c", "CartPole-v1", *TINY, "--trials", "2", "--name", "study", "-P", "no:mlflow")


def test_name_that_windows_does_not_allow_raises(folder: Path) -> None:
    _, err = rlplug(folder, "run", "a2c", "CartPole-v1", *TINY, "--name", "a:b", code=2)
    assert "cannot be written" in err
