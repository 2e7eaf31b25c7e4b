"""Worker processes train and end together, and a run resumes from their state."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.forkserver import _forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_core.errors import UsageError, WorkerFailed
from rlplug_core.loop import process_spawner
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read
from tests.cli.warm import Fork
from tests.core.fakes import ENVS, HERE, SECOND_THREAD, TINY, assert_same, make_runner, save_and_load
from tests.core.traces import logged_processes
from tests.waiting import PATIENCE, until


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def worker_pids(runner: Any) -> list[int]:
    return [child.process.pid for child in runner.children]


def make_process_runner(env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    return make_runner(TINY, env, **{"runner": "async", "workers": 2, "total_timesteps": 400, **options})


def test_workers_train_shared_parameters_and_report() -> None:
    runner = make_process_runner()
    try:
        before = {name: value.clone() for name, value in runner.snapshot().state_dict().items() if name[0] != "_"}
        polls = []
        runner.run(lambda: polls.append(runner.clock.steps))
        after = runner.snapshot().state_dict()
        assert any((value != after[name]).any() for name, value in before.items())
        assert int(runner.slots.sum()) == runner.clock.steps >= 400
        assert (runner.slots > 0).all()
        assert runner.clock.updates == sum(child.updates for child in runner.children) > 10
        episodes = runner.episodes()
        assert {rank for _, rank, _ in episodes} == {0, 1}
        assert all(0 < steps <= runner.clock.steps for steps, *_ in episodes)
        assert set(runner.metrics()) == {"loss/value", "loss/gradient_norm"}
        assert runner.episodes() == []
        pids = worker_pids(runner)
    finally:
        runner.close()
    assert not any(map(alive, pids))


@pytest.mark.parametrize("can_fork", [True, False])
def test_shared_running_statistics_count_each_batch(can_fork: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_spawner, "can_fork", lambda: can_fork)
    runner = make_runner(f"{HERE}:Counting", runner="async", workers=2, total_timesteps=400)
    try:
        runner.run(lambda: None)
        assert int(runner.snapshot().slow.count) == runner.clock.updates > 20
    finally:
        runner.close()


def test_run_resumes_from_state_taken_during_training() -> None:
    """All workers pause between two vector steps; new processes continue from there."""
    runner = make_process_runner(total_timesteps=100_000)
    states = []

    def poll() -> None:
        if runner.clock.updates > 5:
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first state changes nothing

    try:
        runner.run(poll)
    finally:
        runner.close()
    state = states[-1]
    assert sum(state["workers"]["slots"].tolist()) == state["clock"]["steps"]
    assert len(state["workers"]["all"]) == 2
    resumed = make_process_runner()
    try:
        resumed.load_state_dict(state)
        resumed.clock.limit = state["clock"]["steps"] + 200
        assert_same(state["learner"], save_and_load(resumed.snapshot().state_dict()))
        resumed.run(lambda: None)
        assert resumed.clock.steps >= state["clock"]["steps"] + 200
        assert resumed.clock.updates > state["clock"]["updates"]
    finally:
        resumed.close()


def test_state_loses_no_episode_and_no_metric(tmp_path: Path) -> None:
    """Workers send reports when they pause for the state, and no longer have them in their own state."""
    options = {"env": f"{ENVS}:Truncated", "num_envs": 1}  # episodes of 10 steps
    runner = make_process_runner(**options, total_timesteps=100_000)
    episodes = list[Any]()
    states = list[Any]()

    def poll() -> None:
        if runner.clock.updates > 20 and not states:
            episodes.extend(runner.episodes())
            runner.metrics()
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = True

    try:
        runner.run(poll)
    finally:
        runner.close()
    resumed = make_process_runner(**options)
    try:
        resumed.load_state_dict(states[0])
        resumed.clock.limit = states[0]["clock"]["steps"] + 200
        assert set(resumed.metrics()) == {"loss/value", "loss/gradient_norm"}
        resumed.run(lambda: None)
        episodes.extend(resumed.episodes())
        ended = [sum(rank == worker for _, worker, _ in episodes) for rank in (0, 1)]
        assert ended == [steps // 10 for steps in resumed.slots.tolist()]
    finally:
        resumed.close()


def test_workers_load_only_their_own_state() -> None:
    """A worker that starts late must not undo the learning of the others."""
    runner = make_runner(TINY, runner="async", inline=True, workers=2, total_timesteps=100)
    runner.run(lambda: None)
    state = save_and_load(runner.workers[0].state_dict())
    assert state["learner"]["_extra_state"]["optimizers"] == [{}]
    for optimizer in runner.master.optimizers:
        optimizer.target.fill_(0.5)
        for tensor in optimizer.state.values():
            tensor.fill_(0.25)
    runner.workers[0].load_state_dict(state)
    for optimizer in runner.master.optimizers:
        assert (optimizer.target == 0.5).all()
        assert all((tensor == 0.25).all() for tensor in optimizer.state.values())
    local = runner.workers[0].learner.optimizers[0].flat
    assert not (local == 0.5).any()  # its local copy is unchanged


def test_resumed_run_takes_weights_from_the_master() -> None:
    runner = make_process_runner(total_timesteps=300)
    try:
        runner.run(lambda: None)
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    for worker in state["workers"]["all"]:  # the local weights of a worker must not matter
        for value in worker["learner"].values():
            if isinstance(value, torch.Tensor):
                value.fill_(9)
    resumed = make_process_runner(total_timesteps=300)
    try:
        resumed.load_state_dict(state)
        resumed.run(lambda: None)
        assert_same(state["learner"], save_and_load(resumed.state_dict()["learner"]))
    finally:
        resumed.close()


# Faults in a worker.

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
FAULTS = {
    "CrashingWorker": ("worker [01] failed: RuntimeError: the environment broke after 20 steps", "Traceback.*in move"),
    "Exiting": (r"worker [01] exited with code 7", "exited with code 7"),
    "Killed": ("worker [01] was killed by SIGKILL", "SIGKILL"),
    "Hanging": (r"worker [01] sent no message for 2 s; .* \(--worker-timeout waits longer\)", "sent no message"),
    "SimulatorGone": ("worker [01] failed: EOFError: a simulator went away", "Traceback.*a simulator went away"),
    "Exits": ("worker [01] failed: SystemExit: 5", "Traceback"),
    "FailsToBuild": (r"worker [01] failed: '\S+:FailsToBuild' cannot be made: ValueError: no display", "Traceback"),
    "TwoLineError": ("worker [01] failed: RuntimeError: first second", "Traceback.*second"),
    "KilledWithChild": ("worker [01] was killed by SIGKILL", "SIGKILL"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_worker_ends_the_run_and_all_processes(tmp_path: Path, fault: str) -> None:
    env = f"{HARMFUL}{fault}" if fault not in ("CrashingWorker", "Exiting", "Hanging") else f"{ENVS}:{fault}"
    before = children()
    options = {"runner": "async", "workers": 2, "total_timesteps": 10**6, "worker_timeout": 2.0, "eval_episodes": 2}
    message, details = FAULTS[fault]
    with pytest.raises(WorkerFailed, match=message) as caught:
        train(TINY, env, options, out=tmp_path, hooks=False)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    (path,) = tmp_path.iterdir()
    text = (path / "error.txt").read_text()
    assert re.search(details, text, re.DOTALL)
    assert [(r.data.get("status"), r.kind) for r in read(path / "journal.jsonl")][-1] == ("failed", "end")
    assert Run(RunDirectory.open(path)).status == "failed"
    until(lambda: children() <= before)


def children() -> set[int]:
    """Return the child processes without those that multiprocessing keeps."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_text()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent in own_pids() and "resource_tracker" not in line and alive(int(path.name)):
            found.add(int(path.name))
    return found - own_pids()


def own_pids() -> set[int]:
    """Return this process and its fork server."""
    server = getattr(_forkserver, "_forkserver_pid", None)
    return {os.getpid(), *([server] if server else [])}


def test_waiting_for_a_slow_start_is_not_a_hang(tmp_path: Path) -> None:
    """One worker takes longer to start than the timeout while it trains."""
    env = f"{HARMFUL}SlowToBuild"
    options = {
        "runner": "async", "workers": 2, "total_timesteps": 100, "worker_timeout": 0.5, "eval_episodes": 2,
        "final_eval_episodes": 0,
    }  # fmt: skip
    assert train(TINY, env, options, out=tmp_path, hooks=False).status == "finished"


def test_configuring_a_killed_worker_raises() -> None:
    runner = make_process_runner(total_timesteps=10**8)

    def poll() -> None:
        if runner.clock.updates:
            runner.children[0].process.kill()
            runner.children[0].process.join()
            runner.configure({})

    try:
        with pytest.raises(WorkerFailed, match="worker 0 was killed by SIGKILL"):
            runner.run(poll)
    finally:
        runner.close()


def test_workers_stopped_at_start_close_their_environments(tmp_path: Path) -> None:
    """A stop may come while they start; processes of an environment would outlive the run."""
    env = f"{HERE}:LogsClose".replace("fakes.py", "traces.py")
    runner = make_process_runner(env, **{"env.file": str(tmp_path / "closed")})
    try:
        until(lambda: all(child.connection.poll() for child in runner.children))
        runner.clock.stop = True
        runner.run(lambda: None)
        members = worker_pids(runner)
    finally:
        runner.close()
    assert logged_processes(tmp_path / "closed") == {os.getpid(), *members}


def test_worker_that_cannot_load_its_state_ends_all(tmp_path: Path) -> None:
    runner = make_process_runner()
    try:
        runner.run(lambda: None)
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    state["workers"]["all"][1]["actor"]["env"] = {}
    resumed = make_process_runner()
    try:
        resumed.load_state_dict(state)
        with pytest.raises(WorkerFailed, match="worker 1 failed: KeyError"):
            resumed.run(lambda: None)
    finally:
        resumed.close()
    assert not any(map(alive, worker_pids(resumed)))


def test_learner_without_base_class_raises() -> None:
    with pytest.raises(UsageError, match=r"OwnLearner must build on rlplug_core\.Algorithm to run under 'async'"):
        make_runner(f"{HERE}:OwnLearner", inline=True)


# Faults in the parent.

#: Workers are forks of a run without other threads; otherwise a server starts them.
ORIGINS = {"the run": "", "a server": f"{SECOND_THREAD}\n"}

SCRIPT = """
import sys
from rlplug_core.errors import RlplugError
from rlplug_core.runs.api import train
options = {{
    "runner": "async", "workers": 2, "total_timesteps": 10**8, "eval_episodes": 2, "num_envs": 2,
    "checkpoint_every": 10**8,
    **{options},
}}
try:
    train({algorithm!r}, {env!r}, options, out={out!r}, name="run", hooks=False)
except RlplugError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def start(
    fork: Callable[..., Fork], tmp_path: Path, env: str = f"{ENVS}:Chain", origin: str = "", **options: Any
) -> Fork:
    """Start a run in its own process and process group; return after its first metrics."""
    code = origin + SCRIPT.format(options=options, algorithm=TINY, env=env, out=str(tmp_path))
    process = fork("-c", code, stderr=subprocess.PIPE, start_new_session=True)
    journal = tmp_path / "run" / "journal.jsonl"
    until(lambda: process.poll() is not None or (journal.exists() and '"metrics"' in journal.read_text()))
    assert process.poll() is None, process.stderr and process.stderr.read()
    return process


def group(leader: int) -> set[int]:
    """Return the living processes of a session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if session == leader and alive(int(path.name)):
            found.add(int(path.name))
    return found


@pytest.mark.parametrize("env", [pytest.param(f"{ENVS}:Chain", marks=pytest.mark.slow), f"{ENVS}:Hanging"])
@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_workers_end_if_the_parent_is_killed(fork: Callable[..., Fork], tmp_path: Path, env: str, origin: str) -> None:
    """Also a worker that hangs in its environment."""
    process = start(fork, tmp_path, env, origin, log_every=10)
    members = group(process.pid)
    assert len(members) >= 3  # the parent and two workers
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: not group(process.pid))


SIGNALS = [
    (signal.SIGINT, 130, True), (signal.SIGTERM, 143, False), (signal.SIGTERM, 143, True), (signal.SIGHUP, 129, True),
    (signal.SIGUSR1, 138, True),
]  # fmt: skip
#: The signals of a terminal and of a scheduler; `test_signals` sends the others to a run in one process.
NOT_SLOW = [(*SIGNALS[0], ORIGINS["the run"]), (*SIGNALS[1], ORIGINS["a server"])]
SIGNAL_CASES = [
    pytest.param(*case, origin, marks=() if (*case, origin) in NOT_SLOW else pytest.mark.slow)
    for case in SIGNALS
    for origin in ORIGINS.values()
]


@pytest.mark.parametrize(("number", "code", "to_all", "origin"), SIGNAL_CASES)
def test_signal_saves_a_checkpoint_and_run_resumes(
    fork: Callable[..., Fork], tmp_path: Path, number: signal.Signals, code: int, to_all: bool, origin: str
) -> None:
    """The signal reaches only the parent or, as from a terminal or a scheduler, all processes."""
    process = start(fork, tmp_path, origin=origin, log_every=1000)
    if to_all:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, errors
    assert f"stopped by {number.name} at step" in errors
    assert "Traceback" not in errors
    until(lambda: not group(process.pid))
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "interrupted"
    steps = [record.step for record in read(run.journal)][-1]
    resumed = resume(run, total_timesteps=steps + 500, hooks=False)
    assert resumed.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_script_without_main_guard_runs_once(fork: Callable[..., Fork], tmp_path: Path, origin: str) -> None:
    script = tmp_path / "script.py"
    options = {"runner": "async", "total_timesteps": 200, "final_eval_episodes": 0, "eval_episodes": 2}
    script.write_text(
        f"{origin}from rlplug_core.runs.api import train\nprint('started')\n"
        f"train({TINY!r}, '{ENVS}:Chain', {options!r}, out={str(tmp_path)!r}, name='run', hooks=False)\n"
    )
    process = fork("--script", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert output == "started\n"


def test_preload_compiles_numba_loops() -> None:
    """The fork server compiles the loops, and its children share them."""
    pytest.importorskip("numba")
    code = "import rlplug_core.loop.preload\nfrom rlplug_core.fast.loops.learning import polyak as it\n"
    code += "print(len(it.signatures))"
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout == "1\n"
