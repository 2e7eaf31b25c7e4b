"""The kit runs functions in fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rlplug_core.testing.kit.process import in_fresh_process


def report(args: list[str]) -> dict[str, object]:
    os.write(1, " ".join(args).encode())
    os.write(2, b"error")
    return {"variable": os.environ["RLPLUG_TEST"], "pid": os.getpid(), "plugins": "tests.core.fakes" in sys.modules}


def stop_program(args: list[str]) -> int:
    """Start a program and stop it, as an environment does with its simulator."""
    with subprocess.Popen(args) as simulator:
        simulator.terminate()
        return simulator.wait(20)


def test_process_has_variables_of_the_caller_and_not_its_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.core.fakes

    assert tests.core.fakes.__name__ in sys.modules
    for value in ("first", "second"):  # the server is the same
        monkeypatch.setenv("RLPLUG_TEST", value)
        outcome = in_fresh_process(report, ["hello", "there"])
        assert (outcome.code, outcome.printed, outcome.error) == (0, "hello there", "error")
        assert outcome.result["variable"] == value
        assert not outcome.result["plugins"]
        assert outcome.result["pid"] != os.getpid()


def test_error_is_returned() -> None:
    outcome = in_fresh_process(report, ["no variable"])
    assert (outcome.code, outcome.result) == (1, None)
    assert "KeyError: 'RLPLUG_TEST'" in outcome.error


def test_plugin_can_stop_its_child_processes() -> None:
    """Although the server, its parent, ignores and blocks the signal."""
    assert in_fresh_process(stop_program, ["sleep", "60"]).result == -signal.SIGTERM
