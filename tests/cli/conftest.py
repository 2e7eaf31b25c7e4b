"""What the tests of the command line share: a clean working directory, and the command in this process or another."""

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
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_command_left() -> Iterator[None]:
    """A test that fails half-way leaves no `rlplug` process behind."""
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
def rlplug(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The command in this process."""

    def call(*words: str) -> Done:
        monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", os.environ.get("RLPLUG_DISABLED_PLUGINS", ""))
        plugins.refresh()
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Done(code, captured.out, without_notices(captured.err))

    return call


@pytest.fixture
def process(warm: Warm) -> Callable[..., Done]:
    """The command in a process of its own, a fork of one that has imported what it needs."""

    def call(*words: str, **environment: str) -> Done:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            streams = (0, out.fileno(), err.fileno())
            code = call_warm(warm.socket, list(words), {**os.environ, **environment}, streams)
            out.seek(0)
            err.seek(0)
            return Done(code, out.read(), without_notices(err.read()))

    return call


@pytest.fixture
def new_process() -> Callable[..., Done]:
    """The command in a new interpreter, which reads its variables as it starts."""

    def call(*words: str, **environment: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "rlplug_cli", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, **environment},
        )
        return Done(done.returncode, done.stdout, without_notices(done.stderr))

    return call


#: Options with which a run takes a moment.
SHORT = ("--total-timesteps", "600", "--eval-episodes", "2", "--final-eval-episodes", "3", "--eval-every", "300")


@pytest.fixture
def short() -> tuple[str, ...]:
    return SHORT


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store, which the test processes share; making one takes seconds, copying it does not."""
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
def with_store(made_store: Path, place: Path) -> str:
    """The working directory has a store; its URI."""
    shutil.copy(made_store, place / "mlflow.db")
    return store.tracking_uri()


@dataclass
class Written:
    """A run directory as training would leave it, its journal still open."""

    path: Path
    journal: Journal

    def points(self, count: int, start: int = 0, key: str = "loss/policy") -> None:
        for step in range(start, start + count):
            self.journal.write("metrics", step, {key: float(step)})

    def end(self, status: str = "finished") -> None:
        self.journal.write("end", 10_000, {"status": status})
        self.journal.close()


@pytest.fixture
def written(place: Path) -> Callable[..., Written]:
    """A function that makes a run directory with an open journal."""

    def make(name: str = "one", env: str = "CartPole-v1", **options: Any) -> Written:
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
        return Written(path, journal)

    return make
