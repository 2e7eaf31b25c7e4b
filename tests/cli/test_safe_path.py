"""No file of the working directory runs because it is named like a module; `test_ui` shows it for the UI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.planted import environment, plant, ran

FEW = ("--total-timesteps", "400", "--eval-episodes", "1", "--final-eval-episodes", "1")
RLPLUG = Path(sys.executable).with_name("rlplug")


def done(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RLPLUG, *words], cwd=place, env=environment(), capture_output=True, text=True, check=False)


def test_a_planted_file_would_run(place: Path) -> None:
    """In a process with an empty first entry of the path, as `python -c` has it."""
    plant(place)
    subprocess.run([sys.executable, "-c", "import wave"], cwd=place, env=environment(), check=False)
    assert "wave" in ran(place)


def test_a_run_with_workers_and_mlflow_imports_nothing_of_the_working_directory(place: Path, with_store: str) -> None:
    plant(place)
    first = done(place, "run", "a3c", "CartPole-v1", *FEW, "--name", "one")
    assert (first.returncode, ran(place)) == (0, []), first.stderr
    synced = done(place, "sync", "one")
    assert (synced.returncode, ran(place)) == (0, []), synced.stderr


@pytest.mark.slow
def test_a_run_of_a_sweep_imports_nothing_of_the_working_directory(place: Path) -> None:
    plant(place)
    swept = done(place, "run", "a2c", "CartPole-v1", *FEW, "--seeds", "1", "-P", "no:mlflow")
    assert (swept.returncode, ran(place)) == (0, []), swept.stderr
