"""Fixtures for tests of the command line: an empty working directory, and the command in this process or a new one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlplug_cli.__main__ import main
from rlplug_cli.mlflow import store
from rlplug_core import plugins
from rlplug_core.config import locks
from rlplug_core.runs.journal import Journal
from tests.cli.warm import call as call_warm
from tests.conftest import Warm
from tests.waiting import PATIENCE, without_notices


@dataclass
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_command_left() -> Iterator[None]:
    """Kill the `rlplug` processes of a failed test."""
    yield
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "rlplug_cli" in " ".join(child.cmdline()):
                child.kill()
                child.wait()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; nothing of the user's environment reaches the test."""
    for name in ("MLFLOW_TRACKING_URI", "RLPLUG_PLUGINS", "RLPLUG_DISABLED_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RLPLUG_CONFIG", str(tmp_path / "no-config.toml"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    plugins.refresh()
    yield tmp_path
    monkeypatch.undo()
    plugins.refresh()


@pytest.fixture
def rlplug(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command in this process."""

    def call(*words: str) -> Result:
        monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", os.environ.get("RLPLUG_DISABLED_PLUGINS", ""))
        plugins.refresh()
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, without_notices(captured.err))

    return call


@pytest.fixture
def process(warm: Warm) -> Callable[..., Result]:
    """The command in its own process, forked from one that has imported the heavy modules."""

    def call(*words: str, **environment: str) -> Result:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            streams = (0, out.fileno(), err.fileno())
            code = call_warm(warm.socket, list(words), {**os.environ, **environment}, streams)
            out.seek(0)
            err.seek(0)
            return Result(code, out.read(), without_notices(err.read()))

    return call


@pytest.fixture
def new_process() -> Callable[..., Result]:
    """The command in a new interpreter, which reads its environment variables at its start."""

    def call(*words: str, **environment: str) -> Result:
        result = subprocess.run(
            [sys.executable, "-m", "rlplug_cli", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, **environment},
        )
        return Result(result.returncode, result.stdout, without_notices(result.stderr))

    return call


#: Options that make a run take about a second.
SHORT = ("--total-timesteps", "600", "--eval-episodes", "2", "--final-eval-episodes", "3", "--eval-every", "300")


@pytest.fixture
def short() -> tuple[str, ...]:
    return SHORT


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store for all test processes: it takes seconds to create one, and almost none to copy it."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mlflow.db"
    with path.with_suffix(".lock").open("w") as file:
        locks.acquire(file.fileno(), wait=True)
        if not path.exists():
            code = f"from rlplug_cli.mlflow import store; store.prepare('sqlite:///{path}.new')"
            subprocess.run([sys.executable, "-c", code], check=True)
            Path(f"{path}.new").rename(path)
    return path


@pytest.fixture
def with_store(empty_store: Path, place: Path) -> str:
    """Put an MLflow store into the working directory; the value is its URI."""
    shutil.copy(empty_store, place / "mlflow.db")
    return store.tracking_uri()


@dataclass
class RunWithJournal:
    """A run directory like that of a run in training, with an open journal."""

    path: Path
    journal: Journal

    def points(self, count: int, start: int = 0, key: str = "loss/policy") -> None:
        for step in range(start, start + count):
            self.journal.write("metrics", step, {key: float(step)})

    def end(self, status: str = "finished") -> None:
        self.journal.write("end", 10_000, {"status": status})
        self.journal.close()


@pytest.fixture
def make_run(place: Path) -> Callable[..., RunWithJournal]:
    """A function that makes a run directory with an open journal."""

    def make(name: str = "one", env: str = "CartPole-v1", **options: Any) -> RunWithJournal:
        path = place / "runs" / name
        path.mkdir(parents=True)
        config = {
            "name": name,
            "uid": f"uid-{name}",
            "group": "group",
            "algorithm": "a2c",
            "env": env,
            "options": {"seed": 1, "learning_rate": 0.1, "net.hidden": [64, 64], "total_timesteps": 10_000, **options},
            "origins": {},
            "sources": {"algorithm": {"file": "mine.py", "copy": "sources/mine-5ec1.py", "sha256": "5ec1"}},
            "created": time.time(),
        }
        (path / "config.json").write_text(json.dumps(config))
        journal = Journal(path / "journal.jsonl")
        journal.write("start", 0, {"resumed": False})
        return RunWithJournal(path, journal)

    return make
