"""The sender: a server that refuses or never answers neither stops nor slows a run, and nothing is lost."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlplug_cli import tracking
from rlplug_core.plugins import Hooks

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that accepts and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


def test_a_run_is_mirrored_while_it_goes_on(with_store: str, written: Callable[..., Any]) -> None:
    run = written()
    hooks: Any = SimpleNamespace(path=run.path)
    run.points(10)
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    deadline = time.monotonic() + 120
    while sender.mirror.state.cursor < 11:
        assert time.monotonic() < deadline
        assert sender.is_alive()
        sender.join(0.05)
    run.points(5, start=10)
    run.end()
    tracking.rlplug_run_end(hooks)
    assert not sender.is_alive()
    assert json.loads((run.path / "mlflow.json").read_text())["cursor"] == 17


@pytest.mark.parametrize("server", ["refusing", "silent"])
def test_a_server_that_does_not_answer_does_not_stop_a_run(
    server: str,
    request: pytest.FixtureRequest,
    written: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = request.getfixturevalue(server)
    monkeypatch.setenv(tracking.DRAIN, "0.2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run = written()
    hooks: Any = SimpleNamespace(path=run.path)
    started = time.monotonic()
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    run.points(10)
    run.end()
    assert time.monotonic() - started < 1
    while not sender.failure:
        sender.join(0.05)
        assert time.monotonic() - started < 120
    tracking.rlplug_run_end(hooks)
    said = capsys.readouterr().err
    assert said.count(f"MLflow at {uri} takes nothing now") == 1
    assert f"`rlplug sync {run.path}` sends the rest" in said


def test_what_was_not_sent_is_sent_later(
    with_store: str,
    written: Callable[..., Any],
    rlplug: Callable[..., Any],
    refusing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = written()
    run.points(10)
    run.end()
    done = rlplug("sync", "one")
    assert done.code == 1
    assert f"MLflow at {refusing} takes nothing" in done.err
    assert "rlplug sync one" in done.err
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert rlplug("sync", "one").out.startswith("sent 12 records; all of this run is in MLflow at sqlite:///")


def test_a_run_whose_process_was_killed_is_said_to_be_killed(
    with_store: str, written: Callable[..., Any], rlplug: Callable[..., Any]
) -> None:
    from mlflow import MlflowClient

    run = written()
    run.points(10)
    run.journal.close()
    assert rlplug("sync", "one").code == 0
    state = json.loads((run.path / "mlflow.json").read_text())
    assert MlflowClient(with_store).get_run(state["run_id"]).info.status == "KILLED"


def test_the_mirror_is_a_hook_plugin_like_any_other(with_store: str, written: Callable[..., Any]) -> None:
    run = written()
    hooks = Hooks()
    hooks.run_start(SimpleNamespace(path=run.path))  # type: ignore[arg-type]
    assert hooks.failed == {}
    assert [thread.name for thread in threading.enumerate()].count("rlplug-mlflow") >= 1
    run.end()
    hooks.run_end(SimpleNamespace(path=run.path), "finished")  # type: ignore[arg-type]
    assert json.loads((run.path / "mlflow.json").read_text())["cursor"] == 2
