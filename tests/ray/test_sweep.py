"""Sweeps on a Ray cluster: runs of a lost node continue on another node, and no run is repeated."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read
from tests.waiting import until

pytest.importorskip("ray")
PATIENCE = 240.0
TINY = ("--total-timesteps", "40000", "--log-every", "500", "--checkpoint-every", "1000", "--eval-episodes", "1",
        "--final-eval-episodes", "1", "--num-envs", "2", "--env-workers", "1")  # fmt: skip


def sweep(place: Path, on: str, *more: str) -> subprocess.Popen[str]:
    words = ["sweep", "vpg", "CartPole-v1", "--on", on, "--name", "s", *more, *TINY]
    command = [sys.executable, "-P", "-m", "rlplug_cli", *words]
    return subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_runs_of_a_lost_node_continue_on_another(three_nodes: Any, tmp_path: Path) -> None:
    """The node of the first run is killed after a checkpoint: Ray calls the task again, which resumes."""
    process = sweep(tmp_path, f"ray://{three_nodes.address}", "--seeds", "2")
    run = tmp_path / "runs" / "s" / "vpg-CartPole-v1-s1"
    until(lambda: list((run / "checkpoints").glob("step-*")), process, PATIENCE)
    node = next(node for node in three_nodes.worker_nodes if has_run(node, run.name))
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    saved = max(int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("step-*"))
    for child in [raylet, *raylet.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(child.pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert "2 of 2 finished" in output
    first, *later = starts(run)
    assert first == 0
    assert later[-1] >= saved


def test_killed_sweep_runs_all_missing_runs_once(three_nodes: Any, tmp_path: Path) -> None:
    """Killed when one run is finished, one has a checkpoint, and one has not started."""
    on = f"ray://{three_nodes.address}"
    words = ("--seeds", "3", "--jobs", "1")
    done, half, missing = (tmp_path / "runs" / "s" / f"vpg-CartPole-v1-s{seed}" for seed in (1, 2, 3))
    process = sweep(tmp_path, on, *words)
    until(lambda: list((half / "checkpoints").glob("step-*000")), process, PATIENCE)
    saved = max(int(path.name.split("-")[1]) for path in (half / "checkpoints").glob("step-*"))
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: RunDirectory.open(half).status() != "running", seconds=PATIENCE)
    assert RunDirectory.open(half).status() == "interrupted", (
        "Ray kills its guard; it still saves a checkpoint and ends"
    )
    assert RunDirectory.open(done).status() == "finished"
    assert not missing.exists()
    before = (done / "journal.jsonl").read_bytes()
    again = sweep(tmp_path, on, *words)
    output, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, output
    assert "3 of 3 finished" in output
    assert (done / "journal.jsonl").read_bytes() == before
    assert starts(missing) == [0]
    first, *later = starts(half)
    assert first == 0
    assert later[-1] >= saved


def starts(run: Path) -> list[int]:
    """The env steps of a run's starts and resumes."""
    return [record.step for record in read(run / "journal.jsonl", kinds=("start",))]


def has_run(node: Any, name: str) -> bool:
    """Whether a process of the run is a child of the node's raylet."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return any(name in " ".join(child.cmdline()) for child in raylet.children(recursive=True))
