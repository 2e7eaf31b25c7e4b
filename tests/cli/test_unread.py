"""Closed output: `rlplug run … | head -1` continues to train, and other commands exit without a message."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlplug_cli
from rlplug_cli.invoke import run_command
from rlplug_core.loop import take_any_character
from tests.cli.warm import Fork
from tests.waiting import without_notices

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")

RUN = ("run", "a2c", "CartPole-v1", "--name", "one", "-P", "no:mlflow")
BROKEN = """
from rlplug_core.testing.envs import Chain

class Broken(Chain):
    def step(self, action):
        raise BrokenPipeError("the simulator is gone")
"""


def status(place: Path) -> str:
    end = json.loads((place / "runs" / "one" / "journal.jsonl").read_text().splitlines()[-1])
    assert end["kind"] == "end"
    return str(end["data"]["status"])


def test_run_continues_after_its_reader_has_closed(
    place: Path, short: tuple[str, ...], fork: Callable[..., Fork]
) -> None:
    process = fork(*RUN, *short, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("a2c")
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr is not None
    assert without_notices(process.stderr.read()) == ""
    assert status(place) == "finished"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_run_without_a_reader_finishes(
    place: Path, short: tuple[str, ...], words: tuple[str, ...], fork: Callable[..., Fork]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert fork(*RUN, *short, *words, stdout=writer, stderr=writer).wait() == 0
    os.close(writer)
    assert status(place) == "finished"


def test_run_continues_after_its_terminal_has_closed(
    place: Path, short: tuple[str, ...], fork: Callable[..., Fork]
) -> None:
    ours, theirs = pty.openpty()
    process = fork(*RUN, *short, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(ours, 1)  # the display has started
    os.close(ours)
    assert process.wait() == 0
    assert status(place) == "finished"


def test_run_without_stdout_finishes(place: Path, short: tuple[str, ...]) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rlplug_cli", *RUN, *short]
    assert subprocess.run(words, check=False).returncode == 0
    assert status(place) == "finished"


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("--help",)])
def test_other_commands_exit_quietly(words: tuple[str, ...], fork: Callable[..., Fork]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = fork(*words, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert result.communicate()[1] == ""
    assert result.returncode == 141


def test_unread_error_keeps_its_exit_code(fork: Callable[..., Fork]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert fork("list", "nothing", stderr=writer).wait() == 2
    os.close(writer)


def test_broken_pipe_in_an_environment_fails_the_run(place: Path, rlplug: Callable[..., Any]) -> None:
    (place / "broken.py").write_text(BROKEN, encoding="utf-8")
    result = rlplug("run", "a2c", "./broken.py:Broken", "--name", "one", "-P", "no:mlflow")
    assert result.code == 1
    assert "the run failed: BrokenPipeError: the simulator is gone" in result.err


C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, C_LOCALE])
def test_characters_that_stdout_cannot_encode_are_replaced(
    place: Path, short: tuple[str, ...], locale: dict[str, str]
) -> None:
    """In the past, a run failed at its start because its stdout could not encode the dot of its title."""
    environment = {**os.environ, **locale}
    words = [sys.executable, "-m", "rlplug_cli", *RUN, *short]
    result = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    assert result.returncode == 0, result.stdout
    assert b"a2c - CartPole-v1 - seed 1" in result.stdout
    assert result.stdout.isascii()  # click writes UTF-8 unless the stream is named
    assert status(place) == "finished"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_and_lists_use_characters_of_the_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the past, click wrote UTF-8 to an ASCII stream, and `≥` became `?`."""
    for words in ("--help", "run --help", "run ppo --help", "sweep --help", "list", "info ppo", "--version"):
        file = io.BytesIO()
        stream = io.TextIOWrapper(file, encoding=encoding)
        take_any_character(stream)
        monkeypatch.setattr(sys, "stdout", stream)
        assert run_command(words.split(), whole_process=False) == 0
        stream.flush()
        text = file.getvalue().decode(encoding)
        assert text.isascii() or encoding != "ascii", words
        assert "?" not in re.sub(r"\w\?id=", "", text), words
        assert ("INTEGER >= 1" in text) == (words == "info ppo"), words


@pytest.mark.parametrize("words", ["list", "list --json"])
def test_other_commands_without_stdout_exit_quietly(words: str) -> None:
    result = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rlplug_cli", *words.split()],
        check=False,
        stderr=subprocess.PIPE,
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_echo_calls_name_their_stream() -> None:
    """Click writes UTF-8 to an ASCII stream if the call does not name the stream."""
    sources = Path(rlplug_cli.__file__).parent.rglob("*.py")
    calls = [call for path in sources for call in re.findall(r"click\.s?echo\(.*", path.read_text(encoding="utf-8"))]
    assert calls
    assert not [call for call in calls if "file=" not in call]
