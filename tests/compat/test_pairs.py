"""Old and new packages together: plugins work or are incompatible with a pip line, and old runs load and resume."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MUSEUM = Path(__file__).parents[1] / "museum"
SHORT = ("--total-timesteps", "600", "--eval-episodes", "1", "--final-eval-episodes", "1", "-P", "no:mlflow")
RUNS = ("ppo", "dqn", "ppo-recurrent")


def rlplug(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlplug_cli", *words]
    done = subprocess.run(command, cwd=place, check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def usable(place: Path, group: str, name: str) -> bool:
    rows = json.loads(rlplug(place, "plugins", "--json").stdout)
    found = [row for row in rows if (row["group"], row["id"]) == (group, name)]
    return bool(found) and found[0]["status"] == "ok"


def test_each_plugin_works_or_is_incompatible_with_a_pip_line(tmp_path: Path) -> None:
    done = rlplug(tmp_path, "plugins")
    rows = json.loads(rlplug(tmp_path, "plugins", "--json").stdout)
    assert {row["status"] for row in rows} <= {"ok", "incompatible"}
    for row in rows:
        if row["status"] == "incompatible":
            assert f"pip install --upgrade rlplug-core {row['distribution']}" in done.stdout


@pytest.mark.parametrize("words", [("run", "cem", "CartPole-v1"), ("run", "a2c", "gridworld/Corridor-v0")])
def test_a_plugin_trains_or_says_why_not(tmp_path: Path, words: tuple[str, str, str]) -> None:
    done = rlplug(tmp_path, *words, *SHORT)
    assert done.returncode in (0, 2, 3)
    if usable(tmp_path, "algorithms", words[1]) and "/" not in words[2]:
        assert done.returncode == 0, done.stderr


def test_an_algorithm_passes_the_checks_of_its_contract(tmp_path: Path) -> None:
    if usable(tmp_path, "algorithms", "cem"):
        done = rlplug(tmp_path, "check", "cem")
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_loads_and_resumes_or_says_why_not(tmp_path: Path, name: str) -> None:
    release = os.environ["RLPLUG_RELEASE"]
    shutil.copytree(MUSEUM / release / name, tmp_path / name)
    shutil.copytree(MUSEUM / release / f"{name}-export", tmp_path / "policy")
    load = "import rlplug_core; print(rlplug_core.load('policy'))"
    subprocess.run([sys.executable, "-c", load], cwd=tmp_path, check=True, capture_output=True)
    evaluated = rlplug(tmp_path, "evaluate", name, "--episodes", "2", "--json")
    assert evaluated.returncode == 0 or f"=={release}" in evaluated.stderr, evaluated.stderr
    resumed = rlplug(tmp_path, "resume", name, "--total-timesteps", "128", "-P", "no:mlflow")
    assert resumed.returncode == 0 or f"=={release}" in resumed.stderr, resumed.stderr
