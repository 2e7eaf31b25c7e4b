"""Several learners take each gradient step together, save one common state, and end together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import RlplugError, UsageError, WorkerFailed
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory
from tests.cli.warm import Fork
from tests.core.fakes import ENVS, HERE, TINY, TINY_EPOCHS, TINY_Q, assert_same, make_runner, save_and_load
from tests.core.loop.test_async_processes import SCRIPT, group
from tests.core.traces import logged_processes
from tests.waiting import PATIENCE, until

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
TRACES = f"{HERE}:".replace("fakes.py", "traces.py")
TWO = {"runner": "sync", "learners": 2}


def make_two(algorithm: str = TINY, env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    return make_runner(algorithm, env, **{**TWO, "worker_timeout": 20.0, **options})


def test_two_learners_count_all_steps_and_stay_equal() -> None:
    runner = make_two(total_timesteps=400)
    try:
        before = runner.snapshot().policy.outputs.weight.clone()
        polled: list[int] = []
        runner.run(lambda: polled.append(runner.clock.steps))
        assert (runner.snapshot().policy.outputs.weight != before).any()
        assert polled == [*range(0, 404, 4)]  # two environments of two learners
        assert runner.clock.updates == 400 // 16
        assert {rank for _, rank, _ in runner.episodes()} == {0, 1}
        assert set(runner.metrics()) == {"loss/value", "loss/gradient_norm"}
        assert runner.episodes() == []
        state = runner.state_dict()
        (worker,) = state["workers"]["all"]
        tensors = {name: value for name, value in state["learner"].items() if name != "_extra_state"}
        assert tensors
        assert_same(tensors, {name: worker["learner"][name] for name in tensors})
        assert (state["actor"]["obs"] != worker["actor"]["obs"]).any(), "each has its own experience"
    finally:
        runner.close()


def test_episodes_have_the_env_steps_of_all_learners() -> None:
    runner = make_two(env=f"{ENVS}:Truncated", total_timesteps=80)  # episodes of 10 steps in two environments of each
    try:
        runner.run(lambda: None)
        episodes = [(steps, rank) for steps, rank, _ in runner.episodes()]
        assert episodes == [(steps, rank) for steps in (40, 80) for rank in (0, 0, 1, 1)]
    finally:
        runner.close()


def check_exact_resume(uninterrupted: Any, stopped: Any, resumed: Any) -> None:
    """Resume the stopped run, and compare its end with the uninterrupted one."""
    uninterrupted.run(lambda: None)
    resumed.load_state_dict(save_and_load(stopped.state_dict()))
    resumed.clock.stop = False
    resumed.run(lambda: None)
    assert_same(save_and_load(uninterrupted.state_dict()), save_and_load(resumed.state_dict()))


@pytest.mark.parametrize("algorithm", [TINY, TINY_Q])
def test_resumes_exactly_in_new_processes(algorithm: str) -> None:
    uninterrupted, first, resumed = (make_two(algorithm, total_timesteps=240) for _ in range(3))
    try:
        first.run(lambda: setattr(first.clock, "stop", first.clock.steps >= 99))
        assert 99 <= first.clock.steps < 240
        check_exact_resume(uninterrupted, first, resumed)
    finally:
        for runner in (uninterrupted, first, resumed):
            runner.close()


def test_resumes_exactly_after_stop_between_due_updates() -> None:
    """Only the leader is stopped, between three updates that are due at once."""
    uninterrupted, first, resumed = (make_two(TINY_Q, total_timesteps=240) for _ in range(3))
    learn = first.member.learner.update

    def update(batch: Any, clock: Any) -> Any:
        clock.stop = clock.updates == 7
        return learn(batch, clock)

    try:
        first.member.learner.update = update
        first.run(lambda: None)
        assert first.clock.updates == 8
        assert first.member.actor.buffer.due_batches > 0
        check_exact_resume(uninterrupted, first, resumed)
    finally:
        for runner in (uninterrupted, first, resumed):
            runner.close()


def test_trains_and_resumes_a_run(tmp_path: Path) -> None:
    options = {
        **TWO,
        "total_timesteps": 400,
        "num_envs": 2,
        "eval_episodes": 2,
        "final_eval_episodes": 2,
        "lr_patience": 1,
    }
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path, hooks=False)
    assert run.status == "finished"
    assert set(run.episodes()["workers"]) == {0, 1}
    assert resume(run, total_timesteps=600, hooks=False).status == "finished"


def test_environments_without_state_make_the_run_inexact() -> None:
    runner = make_two(env=f"{TRACES}CannotSave")
    try:
        runner.run(lambda: None)
        assert runner.clock.steps == 200
        assert runner.inexact == "CannotSave: a test"
    finally:
        runner.close()


@pytest.mark.parametrize("steps", [0, 200])
def test_learners_close_their_environments(tmp_path: Path, steps: int) -> None:
    """Also if the run ends before they start; processes of an environment would outlive the run."""
    runner = make_two(env=f"{TRACES}LogsClose", **{"env.file": str(tmp_path / "closed")})
    try:
        if steps:
            runner.run(lambda: None)
        else:
            until(runner.children[0].connection.poll)
        members = {os.getpid(), runner.children[0].process.pid}
    finally:
        runner.close()
    assert logged_processes(tmp_path / "closed") == members


REFUSED = {
    "runner": (TINY, {"runner": "async"}, "several learners take each step together.*; add --runner sync"),
    "algorithm": (TINY_EPOCHS, {}, "Epochs does not say that it is sound with several learners"),
    "processes": (TINY, {"env_workers": 2, "num_envs": 2}, "leave out --env-workers"),
    "inline": (TINY, {"inline": True}, "leave out --inline"),
    "data set": (TINY_Q, {"dataset": "x.npz"}, "leave out --dataset"),
    "buffer": (TINY_Q, {"init": "run", "init_parts": ("buffer",)}, "leave buffer out of --init-parts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_algorithms_and_options_raise(case: str) -> None:
    algorithm, options, message = REFUSED[case]
    with pytest.raises(UsageError, match=f"--learners 2: .*{message}"):
        Plan.make(algorithm, f"{ENVS}:Chain", {**TWO, **options})


def test_normalize_obs_raises() -> None:
    with pytest.raises(UsageError, match=r"the running moments of one learner; leave out net\.normalize_obs"):
        make_two(**{"net.normalize_obs": True})


def test_rows_without_transition_raise() -> None:
    runner = make_two(env=f"{HARMFUL}SometimesAbsent")
    try:
        with pytest.raises(UsageError, match="several learners need a transition of every row"):
            runner.run(lambda: None)
    finally:
        runner.close()


def test_detects_weights_that_differ() -> None:
    runner = make_two(f"{HERE}:Drifting", total_timesteps=10**5)
    try:
        with pytest.raises(RlplugError, match=r"no longer have the same 'policy\.\S+'.*outside Optimizer.minimize"):
            runner.run(lambda: runner.clock.updates > 3 and runner.state_dict())
    finally:
        runner.close()


def test_different_numbers_of_gradient_steps_raise() -> None:
    runner = make_two(f"{HERE}:Uneven", worker_timeout=2.0)
    try:
        with pytest.raises(RlplugError, match=r"waited too long for the others: .* or one hangs$"):
            runner.run(lambda: None)
    finally:
        runner.close()


FAULTS = {
    "CrashingWorker": "learner 1 failed: RuntimeError: the environment broke after 20 steps",
    "Killed": "learner 1 was killed by SIGKILL",
    "FailsToBuild": r"learner 1 failed: '\S+:FailsToBuild' cannot be made: ValueError: no display",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_another_learner_ends_the_run(tmp_path: Path, fault: str) -> None:
    env = f"{HARMFUL}{fault}" if fault != "CrashingWorker" else f"{ENVS}:{fault}"
    options = {**TWO, "total_timesteps": 10**6, "eval_episodes": 2, "worker_timeout": 20.0}
    with pytest.raises(WorkerFailed, match=FAULTS[fault]):
        train(TINY, env, options, out=tmp_path, hooks=False)
    (path,) = tmp_path.iterdir()
    assert Run(RunDirectory.open(path)).status == "failed"


def test_names_killed_learner_with_a_living_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlplug_core.loop.data_parallel_leader.CLOSING", 2.0)
    runner = make_two(env=f"{HARMFUL}KilledAfterChild", total_timesteps=10**6)
    try:
        with pytest.raises(WorkerFailed, match=r"^learner 1 was killed by SIGKILL$"):
            runner.run(lambda: None)
    finally:
        runner.close()


def test_killed_leader_ends_all_and_run_resumes(fork: Callable[..., Fork], tmp_path: Path) -> None:
    options = {**TWO, "log_every": 1000, "checkpoint_every": 1000}
    code = SCRIPT.format(options=options, algorithm=TINY, env=f"{ENVS}:Chain", out=str(tmp_path))
    process = fork("-c", code, stderr=subprocess.PIPE, start_new_session=True)
    until(lambda: process.poll() is not None or [*(tmp_path / "run" / "checkpoints").glob("step-*1000")])
    members = group(process.pid)
    assert len(members) >= 2  # the leader and the other learner
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: not group(process.pid))
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "killed"
    steps = max(int(path.name.split("-")[1]) for path in (run.path / "checkpoints").glob("step-*"))
    assert resume(run, total_timesteps=steps + 500, hooks=False).status == "finished"
