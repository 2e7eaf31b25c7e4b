"""No file in the working directory runs because its name is that of a module; `test_ui` tests it for the UI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.planted import environment, plant, ran

FEW = ("--total-timesteps", "400", "--eval-episodes", "1", "--final-eval-episodes", "1")
RLPLUG = Path(sys.executable).with_name("rlplug")


def call(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RLPLUG, *words], cwd=place, env=environment(), capture_output=True, text=True, check=False)


def test_planted_file_runs_in_an_unprotected_process(place: Path) -> None:
    """The first entry of the path is empty in such a process, for example in `python -c`."""
    plant(place)
    subprocess.run([sys.executable, "-c", "import wave"], cwd=place, env=environment(), check=False)
    assert "wave" in ran(place)


def test_run_with_workers_and_mlflow_imports_no_planted_file(place: Path, with_store: str) -> None:
    plant(place)
    first = call(place, "run", "a3c", "CartPole-v1", *FEW, "--name", "one")
    assert (first.returncode, ran(place)) == (0, []), first.stderr
    sync = call(place, "sync", "one")
    assert (sync.returncode, ran(place)) == (0, []), sync.stderr


@pytest.mark.slow
def test_sweep_imports_no_planted_file(place: Path) -> None:
    plant(place)
    sweep = call(place, "run", "a2c", "CartPole-v1", *FEW, "--seeds", "1", "-P", "no:mlflow")
    assert (sweep.returncode, ran(place)) == (0, []), sweep.stderr
