"""Sweeps on a Ray cluster: what a lost node was at goes on elsewhere, and nothing is done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlplug_core.runs.journal import read

pytest.importorskip("ray")
PATIENCE = 240.0
TINY = ("--total-timesteps", "40000", "--log-every", "500", "--checkpoint-every", "1000", "--eval-episodes", "1",
        "--final-eval-episodes", "1", "--num-envs", "2", "--env-workers", "1")  # fmt: skip


def sweep(place: Path, on: str) -> subprocess.Popen[str]:
    words = ["sweep", "vpg", "CartPole-v1", "--seeds", "2", "--on", on, "--name", "s", *TINY]
    command = [sys.executable, "-P", "-m", "rlplug_cli", *words]
    return subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_runs_of_a_lost_node_go_on_elsewhere(three_nodes: Any, tmp_path: Path) -> None:
    """The node that has the first run is killed behind a checkpoint: Ray calls the task again, which resumes."""
    process = sweep(tmp_path, f"ray://{three_nodes.address}")
    run = tmp_path / "runs" / "s" / "vpg-CartPole-v1-s1"
    deadline = time.monotonic() + PATIENCE
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    node = next(each for each in three_nodes.worker_nodes if carries(each, run.name))
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    saved = max(int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("step-*"))
    for one in [raylet, *raylet.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(one.pid, signal.SIGKILL)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert "2 of 2 finished" in said
    first, *later = [record.step for record in read(run / "journal.jsonl", kinds=("start",))]
    assert first == 0
    assert later[-1] >= saved


def carries(node: Any, name: str) -> bool:
    """Whether a run of that name is carried out below the raylet of a node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return any(name in " ".join(child.cmdline()) for child in raylet.children(recursive=True))
