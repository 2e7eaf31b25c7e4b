"""A run that is killed repeatedly at random moments ends like an uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.kills import journal_size
from tests.faults.trials import final_hashes

KILLS = 20
RUN = ("--total-timesteps", "60000", "--checkpoint-every", "2000", "--log-every", "500", "--num-envs", "4")
FEW = ("--eval-episodes", "10", "--final-eval-episodes", "0")


def start(*words: str) -> subprocess.Popen[str]:
    """Start a command in a new process group, so that a kill ends all of its processes."""
    environment = {**os.environ, "RLPLUG_DISABLED_PLUGINS": "mlflow"}
    command = [sys.executable, "-m", "rlplug_cli", *words]
    return subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


def kill_after_bytes(process: subprocess.Popen[str], run: Path, size: int) -> bool:
    """Kill the process group once the journal of `run` is longer than `size` bytes and there is a checkpoint.

    Return False if the process ended before.
    """
    while process.poll() is None:
        if any(run.glob("checkpoints/[!.]*")) and journal_size(run) > size:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue
    finish(process)
    return False


def complete_and_killed_runs(words: Sequence[str], place: Path) -> tuple[Path, Path]:
    """Run `rlplug` with `words` twice in `place`: one run is uninterrupted, the other is killed and resumed."""
    complete = place / "runs" / "complete"
    killed = place / "runs" / "killed"
    finish(start(*words, "--name", "complete"))
    assert kill_after_bytes(start(*words, "--name", "killed"), killed, 6_000)
    assert journal_size(killed) > 0
    finish(start("resume", str(killed)))
    return complete, killed


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "dqn"])
def test_run_killed_repeatedly_ends_with_the_same_bits(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finish(start("run", algorithm, "CartPole-v1", *RUN, *FEW, "--name", "complete"))
    run = tmp_path / "runs" / "killed"
    draw = random.Random(0)
    kills = 0
    process = start("run", algorithm, "CartPole-v1", *RUN, *FEW, "--name", "killed")
    for _ in range(KILLS):
        if not kill_after_bytes(process, run, journal_size(run) + draw.randrange(8_000)):
            break
        kills += 1
        process = start("resume", str(run))
    else:
        finish(process)
    assert kills > KILLS // 2
    assert final_hashes(run) == final_hashes(tmp_path / "runs" / "complete")
