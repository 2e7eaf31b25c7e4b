"""Old and new packages together: plugins work or are reported as incompatible, and old runs load and resume."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

MUSEUM = Path(__file__).parents[1] / "museum"
SHORT = ("--total-timesteps", "600", "--eval-episodes", "1", "--final-eval-episodes", "1", "-P", "no:mlflow")
RUNS = ("ppo", "dqn", "ppo-recurrent")
#: The plugins on the page of plugins: distribution, group, id, arguments of `rlplug check`.
CHECKED = (
    ("rlplug-cem", "algorithms", "cem", "cem"),
    ("rlplug-rnd", "algorithms", "rnd", "rnd"),
    ("rlplug-algos", "algorithms", "ppo", "ppo"),
    ("rlplug-curriculum", "controllers", "goal-curriculum", "controller goal-curriculum"),
    ("rlplug-gridworld", "envs", "gridworld", "env gridworld/Room-v0"),
    ("rlplug-gridworld", "wrappers", "visit-bonus", "wrapper visit-bonus"),
)
#: Checks that fail: plugin, its version, version of rlplug-core. 0.1.0 is a state before the first release.
KNOWN = {
    ("rnd", "0.1.0", "main"): {"tensors"},  # the check is newer
    ("rnd", "main", "0.1.0"): {"index"},  # that core blames plugins for an index from another core
    ("ppo", "main", "0.1.0"): {"index"},
    ("visit-bonus", "0.1.0", "0.1.0"): {"env-seeding"},  # it also counted visits in evaluations
    ("visit-bonus", "0.1.0", "main"): {"env-seeding"},
}


def rlplug(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlplug_cli", *words]
    done = subprocess.run(command, cwd=place, check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def usable(place: Path, group: str, name: str) -> bool:
    rows = json.loads(rlplug(place, "plugins", "--json").stdout)
    found = [row for row in rows if (row["group"], row["id"]) == (group, name)]
    return bool(found) and found[0]["status"] == "ok"


def test_incompatible_plugins_get_a_pip_command(tmp_path: Path) -> None:
    done = rlplug(tmp_path, "plugins")
    rows = json.loads(rlplug(tmp_path, "plugins", "--json").stdout)
    assert {row["status"] for row in rows} <= {"ok", "incompatible"}
    for row in rows:
        if row["status"] == "incompatible":
            assert f"pip install --upgrade rlplug-core {row['distribution']}" in done.stdout


@pytest.mark.parametrize("words", [("run", "cem", "CartPole-v1"), ("run", "a2c", "gridworld/Corridor-v0")])
def test_usable_plugins_train(tmp_path: Path, words: tuple[str, str, str]) -> None:
    done = rlplug(tmp_path, *words, *SHORT)
    assert done.returncode in (0, 2, 3)
    if usable(tmp_path, "algorithms", words[1]) and "/" not in words[2]:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("distribution", "group", "id", "words"), CHECKED)
def test_plugins_pass_their_checks(tmp_path: Path, distribution: str, group: str, id: str, words: str) -> None:
    if not usable(tmp_path, group, id):
        pytest.skip("incompatible; the first test checks the message")
    done = rlplug(tmp_path, "check", *words.split(), "--json")
    report = json.loads(done.stdout)
    statuses = [check["status"] for check in report["checks"]]
    old = os.environ["RLPLUG_OLD"]
    release = os.environ["RLPLUG_RELEASE"]
    result = {
        "distribution": distribution,
        "group": group,
        "id": id,
        "version": release if old in ("plugins", "all") else "main",
        "core": release if old in ("core", "all") else "main",
        "python": platform.python_version(),
        "contract": report["contract"],
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"rlplug check {words}",
        "counts": {status: statuses.count(status) for status in sorted(set(statuses))},
        "failed": [check["name"] for check in report["checks"] if check["status"] == "failed"],
    }
    with open(os.environ["RLPLUG_CHECKED"], "a", encoding="utf-8") as file:
        file.write(f"{json.dumps(result)}\n")
    known = KNOWN.get((id, str(result["version"]), str(result["core"])), set())
    assert set(result["failed"]) == known, done.stdout


@pytest.mark.parametrize("name", RUNS)
def test_old_runs_load_and_resume_or_name_their_release(tmp_path: Path, name: str) -> None:
    release = os.environ["RLPLUG_RELEASE"]
    shutil.copytree(MUSEUM / release / name, tmp_path / name)
    shutil.copytree(MUSEUM / release / f"{name}-export", tmp_path / "policy")
    load = "import rlplug_core; print(rlplug_core.load('policy'))"
    subprocess.run([sys.executable, "-c", load], cwd=tmp_path, check=True, capture_output=True)
    evaluated = rlplug(tmp_path, "evaluate", name, "--episodes", "2", "--json")
    assert evaluated.returncode == 0 or f"=={release}" in evaluated.stderr, evaluated.stderr
    resumed = rlplug(tmp_path, "resume", name, "--total-timesteps", "128", "-P", "no:mlflow")
    assert resumed.returncode == 0 or f"=={release}" in resumed.stderr, resumed.stderr
