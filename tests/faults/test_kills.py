"""A run that is killed again and again, at any moment, ends like one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

KILLS = 20
RUN = ("--total-timesteps", "60000", "--checkpoint-every", "2000", "--log-every", "500", "--num-envs", "4")
FEW = ("--eval-episodes", "10", "--final-eval-episodes", "0")


def start(*words: str) -> subprocess.Popen[str]:
    """A process group of its own, so that a kill takes all of it."""
    environment = {**os.environ, "RLPLUG_DISABLED_PLUGINS": "mlflow"}
    command = [sys.executable, "-m", "rlplug_cli", *words]
    return subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


def killed_beyond(process: subprocess.Popen[str], run: Path, size: int) -> bool:
    """Kill the process group once the journal of `run` is longer than `size` bytes and there is a checkpoint.

    False where the process ended before.
    """
    while process.poll() is None:
        if any(run.glob("checkpoints/[!.]*")) and journal(run) > size:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue
    finish(process)
    return False


def journal(run: Path) -> int:
    """The length of the journal in bytes."""
    path = run / "journal.jsonl"
    return path.stat().st_size if path.exists() else 0


def final(run: Path) -> dict[str, Any]:
    """The hashes of what the final checkpoint holds, but for the events, which hold times."""
    (manifest,) = run.glob("checkpoints/final-*/manifest.json")
    files: dict[str, Any] = json.loads(manifest.read_bytes())["files"]
    return {name: value for name, value in files.items() if not name.startswith("events")}


def whole_and_killed(words: Sequence[str], place: Path) -> tuple[Path, Path]:
    """`rlplug` with `words` twice in `place`: one run left alone, one killed in its middle and resumed."""
    whole, killed = place / "runs" / "whole", place / "runs" / "killed"
    finish(start(*words, "--name", "whole"))
    assert killed_beyond(start(*words, "--name", "killed"), killed, 6_000)
    assert journal(killed) > 0
    finish(start("resume", str(killed)))
    return whole, killed


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "dqn"])
def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_bits(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finish(start("run", algorithm, "CartPole-v1", *RUN, *FEW, "--name", "whole"))
    run, draw, kills = tmp_path / "runs" / "killed", random.Random(0), 0
    process = start("run", algorithm, "CartPole-v1", *RUN, *FEW, "--name", "killed")
    for _ in range(KILLS):
        if not killed_beyond(process, run, journal(run) + draw.randrange(8_000)):
            break
        kills += 1
        process = start("resume", str(run))
    else:
        finish(process)
    assert kills > KILLS // 2
    assert final(run) == final(tmp_path / "runs" / "whole")
