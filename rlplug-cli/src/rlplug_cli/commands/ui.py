"""`rlplug ui`: the MLflow UI, reachable only from this machine and with a token."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from typing import IO
from urllib.parse import quote

import click

from rlplug_cli.mlflow import store, ui_redirect
from rlplug_cli.mlflow.process_guard import kill_tree
from rlplug_cli.mlflow.server import TOKEN
from rlplug_cli.output import echo
from rlplug_core.errors import RlplugError, UsageError, warn

HOST = "127.0.0.1"
#: Seconds until the server must answer.
START = 120.0
#: Seconds that the server has to end by itself.
PATIENCE = 5.0


@click.command("ui")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=5000, help="The port on 127.0.0.1  [5000]"
)
def command(port: int) -> None:
    """Open the MLflow UI on the store that runs in this directory use; Ctrl-C ends it.

    Other accounts of this machine cannot read it: the address has a token, new each time unless RLPLUG_UI_TOKEN is set.
    """
    uri = store.tracking_uri()
    if uri.startswith(("http://", "https://")):
        echo(f"the runs are on a server: {uri}")
        return
    path = store.sqlite_path(uri)
    if path is not None and not path.exists():
        raise UsageError(
            f"there is no MLflow store at {path}; 'rlplug run' makes one in its working directory"
        )
    _check_port(port)
    warn("starting the MLflow server; its link follows")
    token = quote(os.environ.get(TOKEN, "")) or secrets.token_urlsafe(24)
    with tempfile.TemporaryFile() as log:
        _wait_for_end(_start_server(uri, port, token, log), port, token, log)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}); choose another with --port"
            ) from error


def _wait_for_end(
    server: subprocess.Popen[bytes],
    port: int,
    token: str,
    log: IO[bytes],
) -> None:
    """Wait until the server ends or the user ends it."""
    previous_handler = signal.signal(signal.SIGTERM, _stop)
    try:
        _wait_until_ready(server, port, token, log)
        link = newest_experiment(port, token) or f"http://{HOST}:{port}/?token={token}"
        echo(f"newest runs, best first: {link}  (Ctrl-C ends it)")
        server.wait()
        raise RlplugError(f"the MLflow server ended with code {server.returncode}{_last_line(log)}")
    except KeyboardInterrupt:
        echo("")
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        _end_server(server)


def newest_experiment(port: int, token: str) -> str:
    """Return the URL of the newest experiment with the best runs first, or "" if there is none."""
    # Two, because one of them may be the experiment "Default" of MLflow.
    query = {"max_results": 2, "order_by": ["last_update_time DESC"]}
    request = urllib.request.Request(
        f"http://{HOST}:{port}/api/2.0/mlflow/experiments/search",
        json.dumps(query).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=START) as answer:
        experiments = json.load(answer).get("experiments", [])
    ids = [
        experiment["experiment_id"] for experiment in experiments if experiment["name"] != "Default"
    ]
    return f"http://{HOST}:{port}{ui_redirect.PATH}{ids[0]}?token={token}" if ids else ""


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _start_server(
    uri: str,
    port: int,
    token: str,
    log: IO[bytes],
) -> subprocess.Popen[bytes]:
    """Start the server under a guard, which stops it when this process ends."""
    store.apply_settings()
    # MLflow's execution of jobs would start seven more processes, and its interface has no authentication.
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONSAFEPATH": "1",
        TOKEN: token,
    }
    options = ["--backend-store-uri", uri, "--host", HOST, "--port", str(port), "--workers", "1"]
    artifacts = store.artifact_root(uri)
    options += ["--default-artifact-root", artifacts] if artifacts else []
    # uvicorn would put the working directory on the path; its files are not our modules.
    options += ["--app-name", "rlplug", "--uvicorn-opts", f"--app-dir {os.devnull}"]
    guard = [sys.executable, "-P", "-m", "rlplug_cli.mlflow.process_guard", str(PATIENCE)]
    command_line = [*guard, sys.executable, "-m", "mlflow", "server", *options]
    return subprocess.Popen(
        command_line,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )


def _wait_until_ready(
    server: subprocess.Popen[bytes],
    port: int,
    token: str,
    log: IO[bytes],
) -> None:
    health = urllib.request.Request(
        f"http://{HOST}:{port}/health", headers={"Authorization": f"Bearer {token}"}
    )
    deadline = time.monotonic() + START
    pause = threading.Event()
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RlplugError(
                f"the MLflow server ended with code {server.returncode}{_last_line(log)}"
            )
        try:
            with urllib.request.urlopen(health, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            pause.wait(0.2)
    raise RlplugError(f"the MLflow server did not answer on port {port} within {START:.0f} s")


def _last_line(log: IO[bytes]) -> str:
    """Return the last line of the server's output as part of a sentence."""
    log.seek(0)
    lines = [
        line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()
    ]
    return f": {lines[-1][:300]}" if lines else ""


def _end_server(server: subprocess.Popen[bytes]) -> None:
    """Close the guard's pipe, so that it ends the process group; kill the group if that fails."""
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        kill_tree(server)
        server.wait()
