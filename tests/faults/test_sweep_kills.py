"""A sweep that is killed again and again, itself or one of its runs, ends like one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

#: More of them by hand: `RLPLUG_KILLS=50 python -m pytest tests/faults/test_sweep_kills.py`.
KILLS = int(os.environ.get("RLPLUG_KILLS", "6"))
SWEEP = ("sweep", "a2c,dqn", "CartPole-v1", "--seeds", "2", "--jobs", "2", "--set", "gamma=0.9,0.99")
SHORT = ("--total-timesteps", "4000", "--checkpoint-every", "500", "--eval-every", "1000", "--eval-episodes", "2")
FEW = ("--final-eval-episodes", "2", "--set", "dqn:learning_starts=100")
#: Seconds that a whole sweep may take on a busy machine.
PATIENCE = 900


def start(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RLPLUG_DISABLED_PLUGINS": "mlflow"}
    command = [sys.executable, "-m", "rlplug_cli", *words]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def progress(directory: Path) -> int:
    """The length of all journals in bytes."""
    return sum(path.stat().st_size for path in directory.glob("*/journal.jsonl"))


def killed(process: subprocess.Popen[str], directory: Path, more: int, how: str) -> bool:
    """Kill once the journals have grown by `more` bytes: the sweep, a run of it, or the sweep by Ctrl-C.

    False where the sweep ended before.
    """
    until = progress(directory) + more
    while process.poll() is None:
        if progress(directory) >= until:
            hit(process, how)
            process.communicate(timeout=PATIENCE)
            return True
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    return False


def hit(process: subprocess.Popen[str], how: str) -> None:
    if how == "run":
        runs = [
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if "rlplug_cli.mlflow.guard" not in one.cmdline()
        ]
        for one in runs[:1]:
            one.kill()
        process.kill()
    else:
        process.send_signal({"sweep": signal.SIGKILL, "stop": signal.SIGINT}[how])


def finals(directory: Path) -> dict[str, Any]:
    """The hashes of what the final checkpoints hold, but for events, which hold times."""
    found = {}
    for manifest in directory.glob("*/checkpoints/final-*/manifest.json"):
        files = json.loads(manifest.read_bytes())["files"]
        found[manifest.parts[-4]] = {name: value for name, value in files.items() if not name.startswith("events")}
    return found


def ends(run: Path) -> Counter[str]:
    """How often a run's journal says that it finished, and holds a final evaluation."""
    records = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    finished = [record for record in records if record["kind"] == "end" and record["data"]["status"] == "finished"]
    return Counter({"finished": len(finished), "final_eval": sum(record["kind"] == "final_eval" for record in records)})


def test_killed_at_any_moment_and_typed_again_it_does_what_is_missing_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (*SWEEP, *SHORT, *FEW)
    left_alone = start(*words, "--name", "whole")
    said, _ = left_alone.communicate(timeout=PATIENCE)
    assert left_alone.returncode == 0, said
    directory, draw, kills = tmp_path / "runs" / "killed", random.Random(0), Counter[str]()
    share = progress(tmp_path / "runs" / "whole") // (KILLS + 2)
    while kills.total() < KILLS:
        how = draw.choice(["sweep", "run", "stop"])
        process = start(*words, "--name", "killed")
        if not killed(process, directory, draw.randrange(2 * share), how):
            break
        kills[how] += 1
    last = start(*words, "--name", "killed")
    said, _ = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, said
    assert kills.total() > KILLS // 2, kills
    assert finals(directory) == finals(tmp_path / "runs" / "whole")
    assert len(finals(directory)) == 8
    for name in finals(directory):
        assert ends(directory / name) == {"finished": 1, "final_eval": 1}, name
    print(f"kills: {dict(kills)}")  # noqa: T201 - the count is what a run by hand is for
