"""The guard of a command: it hands on how the command ended, and ends it when whoever started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

#: Says that it runs, and how it was ended.
COMMAND = """
import pathlib, signal, sys
def end(number, frame):
    pathlib.Path("ended").write_text("asked to")
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
pathlib.Path("runs").touch()
while True:
    signal.pause()
"""


def guarded(place: Path, *command: str, patience: float = 20.0) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-P", "-m", "rlplug_cli.mlflow.process_guard", str(patience), *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, cwd=place, start_new_session=True)


def members(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(("code", "seen"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_command_that_ends_by_itself_gives_its_code_and_leaves_nobody(code: str, seen: int, tmp_path: Path) -> None:
    guard = guarded(tmp_path, sys.executable, "-c", code)
    assert guard.wait(PATIENCE) == seen
    guard.communicate()
    until(lambda: not members(guard.pid))


@pytest.mark.parametrize("killed", [False, True])
def test_a_command_is_asked_to_end_when_the_pipe_closes_even_if_its_guard_was_killed(
    killed: bool, tmp_path: Path
) -> None:
    """Ray kills the children of a worker that it ends, and so the guard of a sweep's run."""
    guard = guarded(tmp_path, sys.executable, "-c", COMMAND)
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


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    stubborn = "import pathlib, signal\nsignal.signal(15, signal.SIG_IGN)\npathlib.Path('runs').touch()\nsignal.pause()"
    guard = guarded(tmp_path, sys.executable, "-c", stubborn, patience=0.2)
    until((tmp_path / "runs").exists)
    guard.communicate(timeout=PATIENCE)
    assert guard.returncode == -signal.SIGKILL
    until(lambda: not members(guard.pid))
