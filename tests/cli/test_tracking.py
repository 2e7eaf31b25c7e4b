"""The sender: a server that refuses or never answers neither stops nor slows a run, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rlplug_cli.mlflow import hook as tracking
from rlplug_cli.mlflow import sender as sending
from rlplug_cli.mlflow.mirror import Mirror
from rlplug_cli.mlflow.sender import NICE, Sender
from rlplug_core.runs.directory import RunDirectory
from tests.waiting import PATIENCE, until

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


def state(path: Path) -> dict[str, Any]:
    """What `mlflow.json` holds; empty where there is none yet."""
    saved: dict[str, Any] = json.loads((path / "mlflow.json").read_text()) if (path / "mlflow.json").exists() else {}
    return saved


def test_a_run_is_mirrored_while_it_goes_on(with_store: str, written: Callable[..., Any]) -> None:
    run = written()
    hooks: Any = SimpleNamespace(path=run.path)
    run.points(10)
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    until(lambda: state(run.path).get("cursor") == 11)
    assert sender.process.poll() is None
    assert psutil.Process(sender.process.pid).nice() == min(19, psutil.Process().nice() + NICE)
    assert os.getsid(sender.process.pid) == os.getsid(0), "Linux weighs processes by their niceness within a session"
    assert os.getpgid(sender.process.pid) != os.getpgid(0), "Ctrl-C is meant for the run"
    run.points(5, start=10)
    run.end()
    tracking.rlplug_run_end(hooks)
    assert sender.process.returncode == 0
    assert state(run.path)["cursor"] == 17


@pytest.mark.parametrize("server", [pytest.param("refusing", marks=pytest.mark.slow), "silent"])
def test_a_server_that_does_not_answer_does_not_stop_a_run(
    server: str,
    request: pytest.FixtureRequest,
    written: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    uri = request.getfixturevalue(server)
    monkeypatch.setenv(tracking.DRAIN, "0.2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run = written()
    hooks: Any = SimpleNamespace(path=run.path)
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    run.points(10)
    run.end()
    said = ""

    def heard() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "cannot reach MLflow" in said

    until(heard)
    assert sender.process.poll() is None
    tracking.rlplug_run_end(hooks)
    assert sender.process.returncode not in (None, 0)
    said += capfd.readouterr().err
    assert said.count(f"cannot reach MLflow at {uri}") == 1
    assert f"'rlplug sync {run.path}' sends the rest" in said


def test_unsent_records_are_sent_later(
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
    assert f"cannot reach MLflow at {refusing}" in done.err
    assert "rlplug sync one" in done.err
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert rlplug("sync", "one").out.startswith("sent 12 records; all of this run is in MLflow at sqlite:///")


def status(uri: str, run: str) -> str:
    from mlflow import MlflowClient

    return str(MlflowClient(uri).get_run(run).info.status)


def test_sync_says_that_a_run_was_killed(
    with_store: str, written: Callable[..., Any], rlplug: Callable[..., Any]
) -> None:
    run = written()
    run.points(10)
    run.journal.close()
    assert rlplug("sync", "one").code == 0
    assert status(with_store, state(run.path)["run_id"]) == "KILLED"


def test_reaping_tells_mlflow_which_runs_were_killed(
    with_store: str, written: Callable[..., Any], rlplug: Callable[..., Any]
) -> None:
    run = written()
    run.points(10)
    mirror = Mirror(run.path)
    while mirror.send():
        pass
    mirror.close()
    run.points(5, start=10)
    run.journal.close()
    assert status(with_store, state(run.path)["run_id"]) == "RUNNING"
    assert "one: 0 half-written checkpoints deleted; its run in MLflow is ended" in rlplug("runs", "reap").out
    assert status(with_store, state(run.path)["run_id"]) == "KILLED"
    assert state(run.path)["cursor"] == 16


@pytest.mark.slow
def test_a_run_that_is_killed_is_said_to_be_killed_and_nothing_is_left(place: Path, with_store: str) -> None:
    words = ("--total-timesteps", "100000000", "--name", "one", "--log-every", "500", "--eval-episodes", "2")
    running = subprocess.Popen(
        [sys.executable, "-m", "rlplug_cli", "run", "a2c", "CartPole-v1", *words], stdout=subprocess.DEVNULL
    )
    until(lambda: state(place / "runs/one").get("cursor", 0) > 5, running)
    children = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGKILL)
    running.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert children
    assert not alive
    saved = state(place / "runs/one")
    assert status(with_store, saved["run_id"]) == "KILLED"
    lines = (place / "runs/one/journal.jsonl").read_bytes().count(b"\n")
    assert saved["cursor"] == lines


def test_the_sender_of_a_resumed_run_waits_for_the_one_before(
    with_store: str, written: Callable[..., Any], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may wait for a dead store for a while, when its run has been killed."""
    monkeypatch.setattr(tracking, "NOTICE", 60.0)  # how long it takes depends on the machine
    run = written()
    before = Mirror(run.path)
    sender = tracking.Sender()
    sender.follow(run.path)
    run.points(10)
    until(lambda: "rlplug_cli.mlflow.sender" in " ".join(psutil.Process(sender.process.pid).cmdline()))
    before.close()
    until(lambda: state(run.path).get("cursor") == 11)
    run.end()
    assert sender.drain()
    assert capfd.readouterr().err == ""


def test_a_sender_asks_again_while_another_has_the_run(
    with_store: str, written: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, ended, asked = written(), threading.Event(), threading.Event()
    before = Mirror(run.path)

    def pause(ended: threading.Event, seconds: float) -> None:
        asked.set()
        ended.wait(0.02)

    monkeypatch.setattr(sending, "_pause", pause)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(sending._mirror, run.path, ended, 60.0)
        until(asked.is_set)
        assert not found.done()
        before.close()
        found.result().close()


def test_a_sender_without_its_run_says_killed_unless_the_run_was_resumed(
    with_store: str, written: Callable[..., Any]
) -> None:
    run = written()
    ended = threading.Event()
    ended.set()
    with RunDirectory(run.path).locked():
        assert not Sender(Mirror(run.path), ended, 0.5).send()
    assert status(with_store, state(run.path)["run_id"]) == "RUNNING"
    assert Sender(Mirror(run.path), ended, 60.0).send()
    assert status(with_store, state(run.path)["run_id"]) == "KILLED"


@pytest.mark.parametrize("spoil", [pytest.param("mlflow.json", marks=pytest.mark.slow), "mlflow.lock"])
def test_the_sender_never_prints_a_traceback(
    with_store: str, written: Callable[..., Any], spoil: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = written()
    if spoil == "mlflow.lock":
        (run.path / spoil).mkdir()
    else:
        (run.path / spoil).write_text("{")
    run.end()
    sender = tracking.Sender()
    sender.follow(run.path)
    assert not sender.drain()
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
    assert f"rlplug: {run.path} is not sent to MLflow: " in said.err
