"""Worker processes: they train together, end together, and leave a state from which they go on."""

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
    """Whether a process runs; one that nobody has asked about its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def workers_of(runner: Any) -> list[int]:
    return [remote.process.pid for remote in runner.remotes]


def processes_runner(env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    return make_runner(TINY, env, **{"runner": "async", "workers": 2, "total_timesteps": 400, **options})


def test_workers_train_one_set_of_parameters_and_report() -> None:
    runner = processes_runner()
    try:
        before = {name: value.clone() for name, value in runner.snapshot().state_dict().items() if name[0] != "_"}
        polls = []
        runner.run(lambda: polls.append(runner.clock.steps))
        after = runner.snapshot().state_dict()
        assert any((value != after[name]).any() for name, value in before.items())
        assert int(runner.slots.sum()) == runner.clock.steps >= 400
        assert (runner.slots > 0).all()
        assert runner.clock.updates == sum(remote.updates for remote in runner.remotes) > 10
        episodes = runner.episodes()
        assert {rank for _, rank, _ in episodes} == {0, 1}
        assert all(0 < steps <= runner.clock.steps for steps, *_ in episodes)
        assert set(runner.metrics()) == {"loss/value", "loss/gradient_norm"}
        assert runner.episodes() == []
        pids = workers_of(runner)
    finally:
        runner.close()
    assert not any(map(alive, pids))


@pytest.mark.parametrize("forked", [True, False])
def test_no_batch_is_missing_in_running_statistics_that_workers_share(
    forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_spawner, "can_fork", lambda: forked)
    runner = make_runner(f"{HERE}:Counting", runner="async", workers=2, total_timesteps=400)
    try:
        runner.run(lambda: None)
        assert int(runner.snapshot().slow.count) == runner.clock.updates > 20
    finally:
        runner.close()


def test_a_state_taken_in_the_middle_is_complete_and_a_run_goes_on_from_it() -> None:
    """All workers stand still, each between two vector steps; new processes take over where they stood."""
    runner, states = processes_runner(total_timesteps=100_000), []

    def poll() -> None:
        if runner.clock.updates > 5:
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first one disturbs nothing

    try:
        runner.run(poll)
    finally:
        runner.close()
    state = states[-1]
    assert sum(state["workers"]["slots"].tolist()) == state["clock"]["steps"]
    assert len(state["workers"]["all"]) == 2
    again = processes_runner()
    try:
        again.load_state_dict(state)
        again.clock.limit = state["clock"]["steps"] + 200
        assert_same(state["learner"], save_and_load(again.snapshot().state_dict()))
        again.run(lambda: None)
        assert again.clock.steps >= state["clock"]["steps"] + 200
        assert again.clock.updates > state["clock"]["updates"]
    finally:
        again.close()


def test_each_episode_and_each_metric_is_in_the_state_or_was_told_before(tmp_path: Path) -> None:
    """Workers report as they stop for it; what arrives then is in no worker's state any more."""
    options = {"env": f"{ENVS}:Truncated", "num_envs": 1}  # episodes of 10 steps
    runner, told, states = processes_runner(**options, total_timesteps=100_000), list[Any](), list[Any]()

    def poll() -> None:
        if runner.clock.updates > 20 and not states:
            told.extend(runner.episodes())
            runner.metrics()
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = True

    try:
        runner.run(poll)
    finally:
        runner.close()
    again = processes_runner(**options)
    try:
        again.load_state_dict(states[0])
        again.clock.limit = states[0]["clock"]["steps"] + 200
        assert set(again.metrics()) == {"loss/value", "loss/gradient_norm"}
        again.run(lambda: None)
        told.extend(again.episodes())
        ended = [sum(rank == each for _, each, _ in told) for rank in (0, 1)]
        assert ended == [steps // 10 for steps in again.slots.tolist()]
    finally:
        again.close()


def test_workers_load_only_what_is_their_own() -> None:
    """A worker that starts late must not set back what the others have learned since."""
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
    assert not (local == 0.5).any()  # its own copy is the one it had


def test_a_resumed_run_has_its_weights_from_the_master_however_the_workers_load() -> None:
    runner = processes_runner(total_timesteps=300)
    try:
        runner.run(lambda: None)
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    for worker in state["workers"]["all"]:  # what it held locally is of no account to the others
        for value in worker["learner"].values():
            if isinstance(value, torch.Tensor):
                value.fill_(9)
    again = processes_runner(total_timesteps=300)
    try:
        again.load_state_dict(state)
        again.run(lambda: None)
        assert_same(state["learner"], save_and_load(again.state_dict()["learner"]))
    finally:
        again.close()


# What goes wrong in a worker.

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
FAULTS = {
    "CrashingWorker": ("worker [01] failed: RuntimeError: the environment broke after 20 steps", "Traceback.*in move"),
    "Exiting": (r"worker [01] exited with code 7; its last message did not arrive", "exited with code 7"),
    "Killed": ("worker [01] was killed by SIGKILL", "SIGKILL"),
    "Hanging": (r"worker [01] sent no message for 2 s; .* \(--worker-timeout waits longer\)", "sent no message"),
    "SimulatorGone": ("worker [01] failed: EOFError: a simulator went away", "Traceback.*a simulator went away"),
    "Exits": ("worker [01] failed: SystemExit: 5", "Traceback"),
    "FailsToBuild": (r"worker [01] failed: '\S+:FailsToBuild' cannot be made: ValueError: no display", "Traceback"),
    "TwoLineError": ("worker [01] failed: RuntimeError: first second", "Traceback.*second"),
    "KilledWithChild": ("worker [01] was killed by SIGKILL", "SIGKILL"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_worker_ends_the_run_with_one_sentence_and_nobody_left(tmp_path: Path, fault: str) -> None:
    env = f"{HARMFUL}{fault}" if fault not in ("CrashingWorker", "Exiting", "Hanging") else f"{ENVS}:{fault}"
    before = children()
    options = {"runner": "async", "workers": 2, "total_timesteps": 10**6, "worker_timeout": 2.0, "eval_episodes": 2}
    sentence, details = FAULTS[fault]
    with pytest.raises(WorkerFailed, match=sentence) as caught:
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
    """Processes below this one, but for the two that multiprocessing keeps for the next time."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_text()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent in ours() and "resource_tracker" not in line and alive(int(path.name)):
            found.add(int(path.name))
    return found - ours()


def ours() -> set[int]:
    """This process and its fork server."""
    server = getattr(_forkserver, "_forkserver_pid", None)
    return {os.getpid(), *([server] if server else [])}


def test_workers_that_wait_for_another_to_start_are_not_taken_for_hung(tmp_path: Path) -> None:
    """One needs longer to start than any may be silent while it trains."""
    env = f"{HARMFUL}SlowToBuild"
    options = {
        "runner": "async", "workers": 2, "total_timesteps": 100, "worker_timeout": 0.5, "eval_episodes": 2,
        "final_eval_episodes": 0,
    }  # fmt: skip
    assert train(TINY, env, options, out=tmp_path, hooks=False).status == "finished"


def test_settings_for_a_worker_that_was_killed_just_now_end_in_the_usual_sentence() -> None:
    runner = processes_runner(total_timesteps=10**8)

    def poll() -> None:
        if runner.clock.updates:
            runner.remotes[0].process.kill()
            runner.remotes[0].process.join()
            runner.configure({})

    try:
        with pytest.raises(WorkerFailed, match="worker 0 was killed by SIGKILL"):
            runner.run(poll)
    finally:
        runner.close()


def test_workers_that_have_not_begun_close_their_environments(tmp_path: Path) -> None:
    """A stop may come while they start; what an environment has started would outlive the run."""
    env = f"{HERE}:LogsClose".replace("fakes.py", "traces.py")
    runner = processes_runner(env, **{"env.file": str(tmp_path / "closed")})
    try:
        until(lambda: all(remote.connection.poll() for remote in runner.remotes))
        runner.clock.stop = True
        runner.run(lambda: None)
        members = workers_of(runner)
    finally:
        runner.close()
    assert logged_processes(tmp_path / "closed") == {os.getpid(), *members}


def test_the_first_worker_to_fail_to_load_its_state_ends_all(tmp_path: Path) -> None:
    runner = processes_runner()
    try:
        runner.run(lambda: None)
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    state["workers"]["all"][1]["actor"]["env"] = {}
    again = processes_runner()
    try:
        again.load_state_dict(state)
        with pytest.raises(WorkerFailed, match="worker 1 failed: KeyError"):
            again.run(lambda: None)
    finally:
        again.close()
    assert not any(map(alive, workers_of(again)))


def test_a_learner_without_the_seam_is_refused() -> None:
    with pytest.raises(UsageError, match=r"OwnLearner must build on rlplug_core\.Algorithm to run under 'async'"):
        make_runner(f"{HERE}:OwnLearner", inline=True)


# What goes wrong in the parent.

#: A run is forked while nothing else is at work in it; with another thread its processes come from a server.
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
    """A run in a process and process group of its own; returns when its workers have stepped."""
    code = origin + SCRIPT.format(options=options, algorithm=TINY, env=env, out=str(tmp_path))
    process = fork("-c", code, stderr=subprocess.PIPE, start_new_session=True)
    journal = tmp_path / "run" / "journal.jsonl"
    until(lambda: process.poll() is not None or (journal.exists() and '"metrics"' in journal.read_text()))
    assert process.poll() is None, process.stderr and process.stderr.read()
    return process


def group(leader: int) -> set[int]:
    """The living processes of a session."""
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
def test_when_the_parent_is_killed_no_worker_stays(
    fork: Callable[..., Fork], tmp_path: Path, env: str, origin: str
) -> None:
    """Not even one that hangs in its environment."""
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
PLAIN = [(*SIGNALS[0], ORIGINS["the run"]), (*SIGNALS[1], ORIGINS["a server"])]
SIGNALED = [
    pytest.param(*told, origin, marks=() if (*told, origin) in PLAIN else pytest.mark.slow)
    for told in SIGNALS
    for origin in ORIGINS.values()
]


@pytest.mark.parametrize(("number", "code", "to_all", "origin"), SIGNALED)
def test_a_signal_ends_in_a_checkpoint_and_a_resume_continues(
    fork: Callable[..., Fork], tmp_path: Path, number: signal.Signals, code: int, to_all: bool, origin: str
) -> None:
    """The signal reaches only the parent or, as from a terminal or a scheduler, every process."""
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
    again = resume(run, total_timesteps=steps + 500, hooks=False)
    assert again.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_a_script_without_a_main_guard_does_not_start_again_in_its_workers(
    fork: Callable[..., Fork], tmp_path: Path, origin: str
) -> None:
    script = tmp_path / "script.py"
    options = {"runner": "async", "total_timesteps": 200, "final_eval_episodes": 0, "eval_episodes": 2}
    script.write_text(
        f"{origin}from rlplug_core.runs.api import train\nprint('begun')\n"
        f"train({TINY!r}, '{ENVS}:Chain', {options!r}, out={str(tmp_path)!r}, name='run', hooks=False)\n"
    )
    process = fork("--script", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert said == "begun\n"


def test_workers_find_numba_set_up() -> None:
    """What a first call of a loop brings along is the fork server's, which its children share."""
    pytest.importorskip("numba")
    code = "import rlplug_core.loop.preload\nfrom rlplug_core.fast.loops.learning import toward as it\n"
    code += "print(len(it.signatures))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NUMBA_DISABLE_JIT": "0"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"
