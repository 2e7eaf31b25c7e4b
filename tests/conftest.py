"""Fixtures of all tests: a temporary state directory, default signals, a time limit for quick checks, and the order."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import rlplug_core  # noqa: F401 - before numpy, which reads its environment variables once
from rlplug_core import plugins
from tests.cli.warm import Fork, commands

#: Seconds after which tests are skipped; `nox -s quick` sets it.
SECONDS = "RLPLUG_TEST_SECONDS"
STARTED = time.monotonic()
#: The slowest files in the order of their start, so that no process waits for one at the end.
FIRST = (
    "cli/test_docs.py",
    "ecosystem/test_examples.py",
    "ecosystem/test_scaffold.py",
    "algos/test_conformance.py",
    "algos/test_resume.py",
    "cli/test_hostile.py",
    "ecosystem/test_museum.py",
    "cli/test_tracking.py",
    "cli/test_safe_path.py",
    "cli/test_tune.py",
    "envs/test_atari.py",
    "cli/test_run.py",
    "core/testing/test_kit_kinds.py",
    "core/testing/test_kit.py",
    "core/test_conflicts.py",
)
RANKS = {Path(__file__).parent / name: rank for rank, name in enumerate(FIRST)}
assert all(path.is_file() for path in RANKS), "FIRST names a file that has moved"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: RANKS.get(item.path, len(RANKS)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector during collection, and freeze modules and collected tests: it can free none.

    It would take a third of the time of collection, and a seventh of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = os.environ.get(SECONDS)
    if seconds and time.monotonic() - STARTED > float(seconds):
        pytest.skip(f"{seconds} seconds are over; `nox -s tests` runs all tests")


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key that signs runs in a temporary directory."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    del os.environ["XDG_STATE_HOME"]
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True)
def restore_environment() -> Iterator[None]:
    """Restore environment variables and the working directory, which commands that run in this process change."""
    variables = dict(os.environ)
    folder = Path.cwd()
    yield
    if os.environ != variables:
        os.environ.clear()
        os.environ.update(variables)
    os.chdir(folder)


@pytest.fixture
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable the MLflow hook, which starts a process for each run."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    yield
    monkeypatch.undo()
    plugins.refresh()


@pytest.fixture(autouse=True, scope="session")
def default_signals() -> None:
    """Restore default signal handlers: a shell ignores SIGINT for a background command, and runs inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Warm:
    """Commands that fork from a process that has imported their modules: the folder of two commands, and the socket."""

    folder: Path
    socket: str


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """A folder with `rlplug` and `run-script`."""
    folder = tmp_path_factory.mktemp("warm")
    with commands(sys.executable, folder) as path:
        yield Warm(folder, path)


@pytest.fixture
def fork(warm: Warm) -> Iterator[Callable[..., Fork]]:
    """Start a command, `-c` code or a `--script` like `subprocess.Popen`, in a fork; all are closed after the test."""
    started: list[Fork] = []

    def start(*words: str | Path, **streams: Any) -> Fork:
        started.append(Fork(warm.socket, words, **streams))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture(params=["numpy", "numba"], scope="module")
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run all tests of a module without numba, then with it."""
    with loops_by(request.param):
        yield request.param


@contextmanager
def loops_by(library: Literal["numpy", "numba"]) -> Iterator[None]:
    """Compute loops with this library; caches are cleared before and after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1" if library == "numpy" else "0")
        if library == "numba":
            pytest.importorskip("numba").config.reload_config()
        forget_loops()
        yield
    forget_loops()


def forget_loops() -> None:
    from rlplug_core.fast.dense_pass import dense_loops
    from rlplug_core.fast.numba_loops import has_scipy, loop_module, numba_problem
    from rlplug_core.fast.parallel_dense import pass_loops

    for cached in (numba_problem, loop_module, has_scipy, dense_loops, pass_loops):
        cached.cache_clear()
