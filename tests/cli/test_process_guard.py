"""The guard of a command returns its exit code, and stops it when the parent process is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

#: Writes a file at its start, and another one when it gets SIGTERM.
COMMAND = """
import pathlib, signal, sys
def end(number, frame):
    pathlib.Path("ended").write_text("by SIGTERM")
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
pathlib.Path("runs").touch()
while True:
    signal.pause()
"""


def start_guard(place: Path, *command: str, patience: float = 20.0) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-P", "-m", "rlplug_cli.mlflow.process_guard", str(patience), *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, cwd=place, start_new_session=True)


def members(group: int) -> list[int]:
    """Return the living processes of a group."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(process_group) == group and state != "Z":
            pids.append(int(stat.parent.name))
    return pids


@pytest.mark.parametrize(
    ("code", "exit_code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_guard_returns_the_exit_code_and_leaves_no_process(code: str, exit_code: int, tmp_path: Path) -> None:
    guard = start_guard(tmp_path, sys.executable, "-c", code)
    assert guard.wait(PATIENCE) == exit_code
    guard.communicate()
    until(lambda: not members(guard.pid))


@pytest.mark.parametrize("killed", [False, True])
def test_command_stops_when_the_pipe_closes_even_without_a_guard(killed: bool, tmp_path: Path) -> None:
    """Ray kills the children of a worker that it stops, including the guard of a run."""
    guard = start_guard(tmp_path, sys.executable, "-c", COMMAND)
    until((tmp_path / "runs").exists)
    until(lambda: len(members(guard.pid)) == 3)
    if killed:
        os.kill(guard.pid, signal.SIGKILL)
        guard.wait(PATIENCE)
    assert guard.stdin is not None
    guard.stdin.close()
    until((tmp_path / "ended").exists)
    until(lambda: not members(guard.pid))
    if not killed:
        assert guard.wait(PATIENCE) == 3


def test_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = "import pathlib, signal\nsignal.signal(15, signal.SIG_IGN)\npathlib.Path('runs').touch()\nsignal.pause()"
    guard = start_guard(tmp_path, sys.executable, "-c", script, patience=0.2)
    until((tmp_path / "runs").exists)
    guard.communicate(timeout=PATIENCE)
    assert guard.returncode == -signal.SIGKILL
    until(lambda: not members(guard.pid))
