"""Sweeps on Slurm with fake `sbatch` and `scontrol` commands: time limits, node failures, requeues."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_cli.sweep.slurm import SCRIPT, script
from rlplug_core.errors import UsageError
from rlplug_core.runs.journal import read
from tests.waiting import PATIENCE, until

#: Appends its arguments to `calls`, and prints the content of `states`.
FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "{folder}/calls"
case "$(basename "$0")" in
  sbatch) echo "77;cluster" ;;
  scontrol) [ "$1" = --oneliner ] && cat "{folder}/states" || true ;;
esac
"""
#: Options for a run of about ten seconds, so that it does not end before the test sends its signal.
TINY = ("--total-timesteps", "200000", "--log-every", "500", "--checkpoint-every", "1000", "--eval-episodes", "1",
        "--final-eval-episodes", "1", "--num-envs", "2", "--env-workers", "1")  # fmt: skip


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a fake Slurm that records its calls."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "states").write_text("JobId=77 JobState=RUNNING Restarts=0\n")
    for name in ("sbatch", "scontrol"):
        (folder / name).write_text(FAKE.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def start_task(directory: Path, place: int) -> subprocess.Popen[bytes]:
    """Run the script like Slurm does for an element of the array, in a new session."""
    env = {**os.environ, "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(place)}
    return subprocess.Popen(["/bin/sh", str(directory / SCRIPT)], env=env, start_new_session=True)


@pytest.mark.slow
def test_task_continues_after_a_time_limit_and_a_node_failure(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rlplug: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ("sweep", "vpg", "CartPole-v1", "--seeds", "2", "--on", "slurm", "--name", "s", "--sbatch", "--time=60",
             *TINY)  # fmt: skip
    result = rlplug(*typed)
    assert result.code == 0, result.err
    assert result.out.startswith("job 77: 2 of 2 runs")
    directory = tmp_path / "runs" / "s"
    text = (directory / SCRIPT).read_text()
    for line in ("--array=0,1", "--requeue", "--signal=B:USR1@120", "--cpus-per-task=1", "--time=60"):
        assert f"#SBATCH {line}\n" in text
    again = rlplug(*typed)
    assert again.code == 2
    assert "job 77 of" in again.err
    run = directory / "vpg-CartPole-v1-s1"

    process = start_task(directory, 0)
    until(lambda: list((run / "checkpoints").glob("step-*")), process)
    process.send_signal(signal.SIGUSR1)  # its time is nearly up
    assert process.wait(PATIENCE) == 0
    assert (slurm / "calls").read_text().splitlines()[-1] == "scontrol requeue 77_0"
    stopped = max(record.step for record in read(run / "journal.jsonl"))

    process = start_task(directory, 0)  # starts again from the queue
    until(lambda: max(record.step for record in read(run / "journal.jsonl")) > stopped + 1000, process)
    os.killpg(process.pid, signal.SIGKILL)  # the node fails
    process.wait()
    saved = max(int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("step-*"))
    assert saved >= stopped

    assert start_task(directory, 0).wait(PATIENCE) == 0
    starts = [record.step for record in read(run / "journal.jsonl", kinds=("start",))]
    assert starts[0] == 0
    assert starts[1] == stopped
    assert starts[2] >= saved

    (slurm / "states").write_text("JobId=77 JobState=COMPLETED\n")
    third = rlplug(*typed)
    assert third.out.startswith("job 77: 1 of 2 runs")
    assert "#SBATCH --array=1\n" in (directory / SCRIPT).read_text()


def test_script_refuses_line_breaks_and_quotes_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one option of sbatch in one line"):
        script(tmp_path, [0], 1, ["--time=1\nrm -r /"])
    text = script(tmp_path / "two words", [0, 3], 5, [])
    assert re.search(r"^#SBATCH --job-name='rlplug-two words'$", text, re.MULTILINE)
    assert text.splitlines()[-1].endswith(f"rlplug_cli.sweep.task '{tmp_path}/two words'")


def test_missing_sbatch_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rlplug: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = rlplug("sweep", "vpg", "CartPole-v1", "--seeds", "1", "--on", "slurm", *TINY)
    assert result.code == 3
    assert "'sbatch' is not installed here; type --on slurm on a machine that submits to Slurm" in result.err
