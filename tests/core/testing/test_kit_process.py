"""What the kit does in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rlplug_core.testing.kit.process import in_fresh_process


def told(words: list[str]) -> dict[str, object]:
    os.write(1, " ".join(words).encode())
    os.write(2, b"beside")
    return {"variable": os.environ["RLPLUG_TOLD"], "own": os.getpid(), "plugins": "tests.core.fakes" in sys.modules}


def stopped(words: list[str]) -> int:
    """Start a program and stop it, as an environment does with its simulator."""
    with subprocess.Popen(words) as simulator:
        simulator.terminate()
        return simulator.wait(20)


def test_it_has_the_callers_variables_and_nothing_of_its_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.core.fakes

    assert tests.core.fakes.__name__ in sys.modules
    for value in ("one", "two"):  # the server is the same
        monkeypatch.setenv("RLPLUG_TOLD", value)
        ended = in_fresh_process(told, ["hello", "there"])
        assert (ended.code, ended.printed, ended.error) == (0, "hello there", "beside")
        assert ended.result["variable"] == value
        assert not ended.result["plugins"]
        assert ended.result["own"] != os.getpid()


def test_a_fault_is_told() -> None:
    ended = in_fresh_process(told, ["no variable"])
    assert (ended.code, ended.result) == (1, None)
    assert "KeyError: 'RLPLUG_TOLD'" in ended.error


def test_processes_that_a_plugin_starts_can_be_stopped() -> None:
    """Though the server, whose child it is, ignores the signal and blocks it."""
    assert in_fresh_process(stopped, ["sleep", "60"]).result == -signal.SIGTERM
