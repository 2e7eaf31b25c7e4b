"""Wait for a condition, rather than for a time that may be too short or too long."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pytest

    from tests.cli.warm import Fork

T = TypeVar("T")
#: Seconds after which something hangs, even if ten other processes want the same core. Tests that wait for the end of
#: a process, for an answer or for a condition use this limit; tests of a limit set one of their own.
PATIENCE = 900.0
#: Messages that a run prints if a step takes more than two seconds, which depends on the machine.
NOTICES = (
    "training starts after that",
    "starting the environments",
    "sending the rest of the run",
    "comparing the runs; their scores follow",
    "drawing the study's pictures; its best options follow",
    "recording the end in MLflow",
)


def until(
    condition: Callable[[], T], process: subprocess.Popen[Any] | Fork | None = None, seconds: float = PATIENCE
) -> T:
    """Return what `condition` returned once that is true; fail if `process` ends or `seconds` pass before."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, process and process.communicate()
        assert time.monotonic() < deadline, "the condition never came"
        pause.wait(0.02)
    return found


def record_waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the sentence of each wait that would be printed after two seconds."""
    sentences = list[str]()

    def say_later(sentence: str) -> threading.Timer:
        sentences.append(sentence)
        return threading.Timer(0.0, print)  # never started

    monkeypatch.setattr("rlplug_core.loop.notices.say_later", say_later)
    return sentences


def without_notices(stderr: str) -> str:
    """Return stderr without the lines that only a slow machine prints."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not any(notice in line for notice in NOTICES))
