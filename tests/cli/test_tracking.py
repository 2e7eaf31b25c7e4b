"""The sender of a run to MLflow: servers without an answer do not stop or slow a run, and no record is lost."""

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
def refusing_server(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that does not run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that accepts and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


def state(path: Path) -> dict[str, Any]:
    """Return the content of `mlflow.json`, or an empty dictionary without the file."""
    saved: dict[str, Any] = json.loads((path / "mlflow.json").read_text()) if (path / "mlflow.json").exists() else {}
    return saved


#: An environment that writes the parent of each process that makes it.
NOTES_PARENT = """
import os
from pathlib import Path
from gymnasium.envs.classic_control import CartPoleEnv
class NotesParent(CartPoleEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        Path(f"{os.getpid()}.parent").write_text(str(os.getppid()))
"""


def test_workers_are_forks_of_the_run_while_mlflow_is_imported(
    with_store: str, place: Path, new_process: Callable[..., Any], short: tuple[str, ...]
) -> None:
    (place / "world.py").write_text(NOTES_PARENT)
    result = new_process("run", "a3c", "./world.py:NotesParent", "--workers", "2", *short)
    assert result.code == 0, result.err
    parents = {int(path.stem): int(path.read_text()) for path in place.glob("*.parent")}
    (run,) = [process for process, parent in parents.items() if parent == os.getpid()]
    assert [parent for process, parent in parents.items() if process != run] == [run, run]


def test_run_is_sent_during_training(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    hooks: Any = SimpleNamespace(path=run.path)
    run.points(10)
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    until(lambda: state(run.path).get("cursor") == 11)
    assert sender.process.poll() is None
    assert psutil.Process(sender.process.pid).nice() == min(19, psutil.Process().nice() + NICE)
    assert os.getsid(sender.process.pid) == os.getsid(0), "niceness counts within a session on Linux"
    assert os.getpgid(sender.process.pid) != os.getpgid(0), "Ctrl-C must reach only the run"
    run.points(5, start=10)
    run.end()
    tracking.rlplug_run_end(hooks)
    assert sender.process.returncode == 0
    assert state(run.path)["cursor"] == 17


@pytest.mark.parametrize("server", [pytest.param("refusing_server", marks=pytest.mark.slow), "silent_server"])
def test_server_without_an_answer_does_not_stop_a_run(
    server: str,
    request: pytest.FixtureRequest,
    make_run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    uri = request.getfixturevalue(server)
    monkeypatch.setenv(tracking.DRAIN, "0.2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run = make_run()
    hooks: Any = SimpleNamespace(path=run.path)
    tracking.rlplug_run_start(hooks)
    sender = tracking._senders[run.path]
    run.points(10)
    run.end()
    errors = ""

    def warned() -> bool:
        nonlocal errors
        errors += capfd.readouterr().err
        return "cannot reach MLflow" in errors

    until(warned)
    assert sender.process.poll() is None
    tracking.rlplug_run_end(hooks)
    assert sender.process.returncode not in (None, 0)
    errors += capfd.readouterr().err
    assert errors.count(f"cannot reach MLflow at {uri}") == 1
    assert f"'rlplug sync {run.path}' sends the rest" in errors


def test_unsent_records_are_sent_later(
    with_store: str,
    make_run: Callable[..., Any],
    rlplug: Callable[..., Any],
    refusing_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run()
    run.points(10)
    run.end()
    result = rlplug("sync", "one")
    assert result.code == 1
    assert f"cannot reach MLflow at {refusing_server}" in result.err
    assert "rlplug sync one" in result.err
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert rlplug("sync", "one").out.startswith("sent 12 records; all of this run is in MLflow at sqlite:///")


def status(uri: str, run: str) -> str:
    from mlflow import MlflowClient

    return str(MlflowClient(uri).get_run(run).info.status)


def test_sync_marks_a_killed_run(with_store: str, make_run: Callable[..., Any], rlplug: Callable[..., Any]) -> None:
    run = make_run()
    run.points(10)
    run.journal.close()
    assert rlplug("sync", "one").code == 0
    assert status(with_store, state(run.path)["run_id"]) == "KILLED"


def test_reap_marks_killed_runs_in_mlflow(
    with_store: str, make_run: Callable[..., Any], rlplug: Callable[..., Any]
) -> None:
    run = make_run()
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
def test_sender_marks_a_killed_run_and_exits(place: Path, with_store: str) -> None:
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


def test_sender_of_a_resumed_run_waits_for_the_previous_one(
    with_store: str, make_run: Callable[..., Any], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous sender of a killed run may still wait for a store that does not answer."""
    monkeypatch.setattr(tracking, "NOTICE", 60.0)  # how long it takes depends on the machine
    run = make_run()
    previous = Mirror(run.path)
    sender = tracking.Sender()
    sender.follow(run.path)
    run.points(10)
    until(lambda: "rlplug_cli.mlflow.sender" in " ".join(psutil.Process(sender.process.pid).cmdline()))
    previous.close()
    until(lambda: state(run.path).get("cursor") == 11)
    run.end()
    assert sender.drain()
    assert capfd.readouterr().err == ""


def test_sender_tries_again_while_another_sends_the_run(
    with_store: str, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    ended = threading.Event()
    waiting = threading.Event()
    previous = Mirror(run.path)

    def pause(ended: threading.Event, seconds: float) -> None:
        waiting.set()
        ended.wait(0.02)

    monkeypatch.setattr(sending, "_pause", pause)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sending._open_mirror, run.path, ended, 60.0)
        until(waiting.is_set)
        assert not future.done()
        previous.close()
        future.result().close()


def test_sender_marks_its_run_as_killed_unless_it_was_resumed(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    ended = threading.Event()
    ended.set()
    with RunDirectory(run.path).locked():
        assert not Sender(Mirror(run.path), ended, 0.5).send()
    assert status(with_store, state(run.path)["run_id"]) == "RUNNING"
    assert Sender(Mirror(run.path), ended, 60.0).send()
    assert status(with_store, state(run.path)["run_id"]) == "KILLED"


@pytest.mark.parametrize("name", [pytest.param("mlflow.json", marks=pytest.mark.slow), "mlflow.lock"])
def test_sender_never_prints_a_traceback(
    with_store: str,
    make_run: Callable[..., Any],
    name: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(tracking.DRAIN, str(PATIENCE))  # a busy machine starts the sender slowly
    run = make_run()
    if name == "mlflow.lock":
        (run.path / name).mkdir()
    else:
        (run.path / name).write_text("{")
    run.end()
    sender = tracking.Sender()
    sender.follow(run.path)
    assert not sender.drain()
    output = capfd.readouterr()
    assert "Traceback" not in output.err + output.out
    assert f"rlplug: {run.path} is not sent to MLflow: " in output.err
