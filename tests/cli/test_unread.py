"""What nobody reads: `rlplug run … | head -1` trains on, and other commands end without a word."""

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


def test_a_run_goes_on_when_its_reader_has_gone(place: Path, short: tuple[str, ...], fork: Callable[..., Fork]) -> None:
    process = fork(*RUN, *short, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("a2c")
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert status(place) == "finished"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_run_that_nobody_ever_hears_ends_as_others_do(
    place: Path, short: tuple[str, ...], words: tuple[str, ...], fork: Callable[..., Fork]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert fork(*RUN, *short, *words, stdout=writer, stderr=writer).wait() == 0
    os.close(writer)
    assert status(place) == "finished"


def test_a_run_goes_on_when_its_terminal_has_gone(
    place: Path, short: tuple[str, ...], fork: Callable[..., Fork]
) -> None:
    ours, theirs = pty.openpty()
    process = fork(*RUN, *short, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(ours, 1)  # the display has begun
    os.close(ours)
    assert process.wait() == 0
    assert status(place) == "finished"


def test_a_run_without_any_stdout_trains(place: Path, short: tuple[str, ...]) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rlplug_cli", *RUN, *short]
    assert subprocess.run(words, check=False).returncode == 0
    assert status(place) == "finished"


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("--help",)])
def test_another_command_ends_quietly(words: tuple[str, ...], fork: Callable[..., Fork]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = fork(*words, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.communicate()[1] == ""
    assert done.returncode == 141


def test_an_error_that_nobody_reads_keeps_its_code(fork: Callable[..., Fork]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert fork("list", "nothing", stderr=writer).wait() == 2
    os.close(writer)


def test_a_pipe_that_breaks_in_an_environment_is_an_error_of_the_run(place: Path, rlplug: Callable[..., Any]) -> None:
    (place / "broken.py").write_text(BROKEN, encoding="utf-8")
    done = rlplug("run", "a2c", "./broken.py:Broken", "--name", "one", "-P", "no:mlflow")
    assert done.code == 1
    assert "the run failed: BrokenPipeError: the simulator is gone" in done.err


C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, C_LOCALE])
def test_a_stdout_without_a_character_prints_another(
    place: Path, short: tuple[str, ...], locale: dict[str, str]
) -> None:
    """A run ended at its first step, failed, because its stdout could not encode the dot of its title."""
    environment = {**os.environ, **locale}
    words = [sys.executable, "-m", "rlplug_cli", *RUN, *short]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    assert done.returncode == 0, done.stdout
    assert b"a2c - CartPole-v1 - seed 1" in done.stdout
    assert done.stdout.isascii()  # click writes UTF-8 unless the stream is named
    assert status(place) == "finished"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_and_lists_are_spelled_in_characters_that_the_stream_has(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Click wrote UTF-8 to a stream of ASCII, and `?` stood for `≥`."""
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
def test_another_command_without_any_stdout_ends_quietly(words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rlplug_cli", *words.split()],
        check=False, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_output_names_its_stream() -> None:
    """Click takes a stream of ASCII for a mistake and writes UTF-8 to it, unless the stream is named."""
    sources = Path(rlplug_cli.__file__).parent.rglob("*.py")
    calls = [call for path in sources for call in re.findall(r"click\.s?echo\(.*", path.read_text(encoding="utf-8"))]
    assert calls
    assert not [call for call in calls if "file=" not in call]
