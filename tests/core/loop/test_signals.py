"""Signals: a run saves a checkpoint and ends, or pauses and continues."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import Stopped
from rlplug_core.loop.signals import STOPPING, block_signals, handle_signals, ignore_stop_signals
from rlplug_core.runs.api import open_run, resume
from tests.cli.warm import Fork
from tests.core.fakes import ENVS, SECOND_THREAD, TINY
from tests.core.loop.test_async_processes import group
from tests.waiting import PATIENCE, until

STUCK = Path(__file__).with_name("stuck.py")
SCRIPT = """
import sys
from rlplug_core.errors import RlplugError, Stopped
from rlplug_core.runs.api import train
options = {{"total_timesteps": 10**8, "log_every": 200, "eval_episodes": 2, "final_eval_episodes": 0, **{options}}}
try:
    train({algorithm!r}, {env!r}, options, out={out!r}, name="run", hooks=False)
except (RlplugError, Stopped) as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


Start = Callable[..., Fork]


@pytest.fixture
def start(fork: Callable[..., Fork], tmp_path: Path) -> Start:
    """Start a run in its own process and process group."""

    def start_run(env: str = f"{ENVS}:Chain", origin: str = "", **options: Any) -> Fork:
        code = origin + SCRIPT.format(options=options, algorithm=TINY, env=env, out=str(tmp_path))
        variables = {**os.environ, "STUCK": str(tmp_path / "stuck")}
        return fork("-c", code, stderr=subprocess.PIPE, start_new_session=True, env=variables)

    return start_run


def journal(tmp_path: Path) -> str:
    path = tmp_path / "run" / "journal.jsonl"
    return path.read_text() if path.exists() else ""


def wait_for_end(process: Fork) -> tuple[int, str]:
    _, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    return process.returncode, errors


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow), (signal.SIGUSR1, 138)]
)
def test_sighup_and_sigusr1_save_a_checkpoint(start: Start, tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = start(runner="sync")
    until(lambda: '"metrics"' in journal(tmp_path), process)
    process.send_signal(number)
    exit_code, errors = wait_for_end(process)
    assert (exit_code, f"stopped by {number.name} at step" in errors) == (code, True)
    assert open_run(tmp_path / "run").status == "interrupted"


def test_ignored_sighup_stays_ignored() -> None:
    """As `nohup` sets it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handle_signals(lambda number: pytest.fail("SIGHUP was handled")):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sigterm_after_sigusr1_does_not_stop_at_once() -> None:
    """A batch system warns with SIGUSR1 and ends with SIGTERM; only a second SIGTERM stops at once."""
    received: list[int] = []
    with handle_signals(received.append):
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="a second SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("name", [pytest.param("InPython", marks=pytest.mark.slow), "InC"])
def test_second_sigterm_ends_hanging_environment(start: Start, tmp_path: Path, name: str) -> None:
    """Also in C: Python handles no signal then."""
    process = start(f"{STUCK}:{name}", runner="sync")
    until(lambda: (tmp_path / "stuck").exists(), process)
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.terminate()
    code, errors = wait_for_end(process)
    assert (code, "by a second SIGTERM" in errors) == (143, True)
    assert "did not react" not in errors or "rlplug resume" in errors
    run = open_run(tmp_path / "run")
    assert run.status in ("interrupted", "killed")
    assert resume(run, total_timesteps=100, hooks=False).status == "finished"


@pytest.mark.parametrize(
    ("origin", "number"),
    [
        pytest.param(SECOND_THREAD, 2, marks=pytest.mark.slow),
        pytest.param(SECOND_THREAD, 3, marks=pytest.mark.slow),
        ("", 1),
        pytest.param("", 2, marks=pytest.mark.slow),
    ],
    ids=["the server", "a worker of the server", "a worker", "the next worker"],
)
def test_interrupt_while_workers_start_stops_cleanly(start: Start, tmp_path: Path, origin: str, number: int) -> None:
    process = start(origin=origin, runner="async", workers=3)
    until(lambda: len(group(process.pid)) > number, process)
    os.killpg(process.pid, signal.SIGINT)
    code, errors = wait_for_end(process)
    assert code == 130, errors
    assert "stopped by SIGINT at step" in errors
    assert resume(open_run(tmp_path / "run"), total_timesteps=2000, hooks=False).status == "finished"


#: Each kind of process that a run waits for.
WORKERS: dict[str, dict[str, Any]] = {
    "workers": {"runner": "async"},
    "environments": {"runner": "sync", "num_envs": 2, "env_workers": 2},
    "actors": {"runner": "decoupled", "actors": 2},
    "learners": {"runner": "sync", "learners": 2},
}


@pytest.mark.parametrize(
    "options",
    [pytest.param(WORKERS[name], id=name, marks=() if name == "workers" else pytest.mark.slow) for name in WORKERS],
)
def test_run_continues_after_long_sigstop(start: Start, tmp_path: Path, options: dict[str, Any]) -> None:
    process = start(worker_timeout=1.0, **options)
    until(lambda: '"metrics"' in journal(tmp_path), process)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(3)  # only time can exceed the timeout
    before = len(journal(tmp_path))
    os.killpg(process.pid, signal.SIGCONT)
    until(lambda: len(journal(tmp_path)) > before + 1000, process)
    os.killpg(process.pid, signal.SIGTERM)
    assert wait_for_end(process)[0] == 143


FORKS = """
import multiprocessing, os, signal, time
from rlplug_core.loop.signals import handle_signals
received, context = [], multiprocessing.get_context("fork")
children = [context.Process(target=time.sleep, args=(600,)) for _ in range(9)]
with handle_signals(received.append):
    for child in children:
        child.start()
        if child is not children[8]:
            child.terminate()
    for child in children[:8]:
        child.join()
print({child.exitcode for child in children[:8]}, received, children[8].is_alive())
children[8].kill()
"""


def test_forked_children_get_default_signals_and_do_not_block(fork: Callable[..., Fork]) -> None:
    """SIGTERM of a child does not reach the run, and a living child does not keep the run from ending."""
    process = fork("-c", FORKS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate(timeout=PATIENCE) == (f"{{{-signal.SIGTERM}}} [] True\n", "")


def test_processes_of_worker_get_signals() -> None:
    """A simulator inherits blocked signals, and its environment could not end one that blocks SIGTERM."""
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    try:
        with block_signals():
            ignore_stop_signals()
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()).intersection(STOPPING)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
