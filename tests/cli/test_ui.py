"""`rlplug ui` runs the MLflow server on loopback only and with a token, and leaves no process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlplug_cli.commands.ui import newest_experiment
from tests.cli.planted import environment, plant, ran
from tests.waiting import PATIENCE

#: The token of the servers of these tests.
KEY = "known-here-alone"


@pytest.fixture
def server(place: Path, with_store: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A running `rlplug ui` and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plant(place)
    words = [Path(sys.executable).with_name("rlplug"), "ui", "--port", str(port)]
    variables = {**environment(), "RLPLUG_UI_TOKEN": KEY}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "rlplug: starting the MLflow server; its link follows\n"
        assert f"http://127.0.0.1:{port}/?token={KEY} " in process.stdout.readline()
        yield process, port
        assert ran(place) == []
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()


def get(port: int, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Send a request with the token; `headers` override it."""
    known = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, known)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return children


def test_server_is_only_for_its_account(
    server: tuple[subprocess.Popen[str], int], place: Path, with_store: str
) -> None:
    """One server for several checks: a start takes seconds."""
    process, port = server
    assert_on_loopback(process, port)
    assert_token_needed(process, port, place)
    assert_cookie(port)
    assert_newest_is_linked(port, with_store)


def assert_on_loopback(process: subprocess.Popen[str], port: int) -> None:
    status, page = get(port, "/")
    assert status == 200
    assert "<title>MLflow</title>" in page
    assert get(port, "/", Host="evil.example")[0] == 403
    listening = {
        connection.laddr
        for child in descendants(process)
        for connection in child.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {(address.ip, address.port) for address in listening} == {("127.0.0.1", port)}
    assert len(descendants(process)) <= 4  # the guard, its watch, the server and its one worker
    assert any(child.environ()["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false" for child in descendants(process))


def assert_token_needed(process: subprocess.Popen[str], port: int, place: Path) -> None:
    """Another account can read no file through the server."""
    (place / "secret.txt").write_text("secret")
    experiment = {"name": "theirs", "artifact_location": place.as_uri()}
    for headers in (
        {"Authorization": ""},
        {"Authorization": "Bearer no"},
        {"Authorization": "", "Cookie": "rlplug-ui-1=x"},
    ):
        assert get(port, "/api/2.0/mlflow/experiments/create", experiment, **headers)[0] == 401
        for path in ("/", "/health", "/get-artifact?path=secret.txt&run_id=x", "/?token=no"):
            assert get(port, path, **headers)[0] == 401
    assert not any(KEY in " ".join(child.cmdline()) for child in [psutil.Process(process.pid), *descendants(process)])


def assert_cookie(port: int) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(f"http://127.0.0.1:{port}/?token={KEY}", timeout=PATIENCE) as answer:
        assert answer.url == f"http://127.0.0.1:{port}/"
        assert "<title>MLflow</title>" in answer.read().decode()


def assert_newest_is_linked(port: int, with_store: str) -> None:
    from mlflow import MlflowClient

    assert newest_experiment(port, KEY) == ""
    experiment = MlflowClient(with_store).create_experiment("CartPole-v1")
    assert newest_experiment(port, KEY) == f"http://127.0.0.1:{port}/rlplug/runs/{experiment}?token={KEY}"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(newest_experiment(port, KEY), timeout=PATIENCE) as answer:
        assert answer.url == f"http://127.0.0.1:{port}/rlplug/runs/{experiment}"
        assert answer.headers["content-type"].startswith("text/html")
        assert f"/#/experiments/{experiment}/runs?orderByKey=metrics.%60final" in answer.read().decode()
    assert get(port, f"/rlplug/runs/{experiment}", Authorization="")[0] == 401
    assert get(port, "/rlplug/runs/1;alert(1)")[0] == 404


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
)
def test_no_process_is_left_after_a_signal(server: tuple[subprocess.Popen[str], int], number: signal.Signals) -> None:
    process, _ = server
    children = descendants(process)
    assert children
    os.kill(process.pid, number)
    assert process.wait(PATIENCE) == (-9 if number is signal.SIGKILL else 0)
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive


def test_ui_only_names_a_remote_server(rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example:5000")
    result = rlplug("ui")
    assert (result.code, result.out) == (0, "the runs are on a server: http://mlflow.example:5000\n")
