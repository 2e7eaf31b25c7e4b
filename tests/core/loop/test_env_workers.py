"""Environment workers: a run in several processes resumes exactly and reports faults of workers."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.errors import BadEnv, PluginError, UsageError, WorkerFailed
from rlplug_core.loop.build import training_env
from rlplug_core.loop.env_timing import choose_env_workers, fastest_worker_count
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import legal
from rlplug_core.protocols import Env
from rlplug_core.runs.api import resume, train
from tests.core.fakes import ENVS, HERE, TINY, assert_same, make_runner, save_and_load

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
WORKERS = {"runner": "sync", "num_envs": 3, "env_workers": 2}


def make_env(env: str, **options: Any) -> Env:
    return training_env(Plan.make(TINY, env, {"total_timesteps": 100, "worker_timeout": 2.0, **WORKERS, **options}))


def test_resumes_exactly_in_new_processes() -> None:
    uninterrupted, first, resumed = (make_runner(TINY, **WORKERS, total_timesteps=240) for _ in range(3))
    try:
        uninterrupted.run(lambda: None)
        first.run(lambda: setattr(first.clock, "stop", first.clock.steps >= 99))
        assert 99 <= first.clock.steps < 240
        resumed.load_state_dict(save_and_load(first.state_dict()))
        resumed.clock.stop = False
        resumed.run(lambda: None)
        assert_same(save_and_load(uninterrupted.state_dict()), save_and_load(resumed.state_dict()))
    finally:
        for runner in (uninterrupted, first, resumed):
            runner.close()


def test_run_trains_and_resumes(tmp_path: Path) -> None:
    options = {**WORKERS, "total_timesteps": 300, "eval_episodes": 2, "final_eval_episodes": 2}
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path, hooks=False)
    assert resume(run, total_timesteps=450, hooks=False).status == "finished"


@pytest.mark.parametrize("env", ["Chain", "Masked", "Pixels", "Continuous", "Truncated"])
def test_workers_transfer_each_kind_of_observation_and_action(env: str) -> None:
    """The first worker has the seeds of a single worker, so its rows are equal."""
    workers = make_env(f"{ENVS}:{env}", num_envs=4)
    single = make_env(f"{ENVS}:{env}", num_envs=2, env_workers=1)
    try:
        assert (workers.spec.obs, workers.spec.action) == (single.spec.obs, single.spec.action)
        space = single.spec.action
        space.seed(3)
        timestep, expected = workers.reset(3), single.reset(3)
        for _ in range(30):
            assert_same(first_two(timestep.obs), expected.obs)
            assert_same(first_two(timestep.final_obs), expected.final_obs)
            for name in ("reward", "terminated", "truncated", "is_first", "valid"):
                assert np.array_equal(getattr(timestep, name)[:2], getattr(expected, name)), name
            assert [e for e in timestep.episodes if e.row < 2] == list(expected.episodes)
            actions = np.stack([space.sample() for _ in range(4)])
            actions = legal(space, actions, timestep.obs["action_mask"]) if env == "Masked" else actions
            timestep = workers.step(actions)
            expected = single.step(actions[:2])
    finally:
        workers.close()


def first_two(tree: Any) -> Any:
    return {name: first_two(part) for name, part in tree.items()} if isinstance(tree, dict) else tree[:2]


FAULTS = {
    f"{ENVS}:CrashingWorker": "CrashingWorker: in step 21 the worker of environment 0 raised RuntimeError: the env",
    f"{ENVS}:Exiting": "in step 21 the worker of environment 0 exited with code 7",
    f"{ENVS}:Hanging": r"in step 21 the worker of environment 0 sent no message for 2 s; .* \(--worker-timeout",
    f"{HARMFUL}Killed": "in step 21 the worker of environment 0 was killed by SIGKILL",
    f"{HARMFUL}KilledWithChild": "in step 21 the worker of environment 0 was killed by SIGKILL",
    f"{HARMFUL}SimulatorGone": "in step 21 the worker of environment 0 raised EOFError: a simulator went away",
}


@pytest.mark.parametrize("env", FAULTS, ids=lambda env: env.rpartition(":")[2])
def test_fault_names_environment_and_step_and_ends_all_workers(env: str) -> None:
    vector = make_env(env)
    vector.reset(0)
    for _ in range(20):
        vector.step(np.zeros(3, np.int64))
    with pytest.raises(WorkerFailed, match=FAULTS[env]):
        vector.step(np.zeros(3, np.int64))
    assert not multiprocessing.active_children()


def test_hang_before_first_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_core.loop.child_process.STARTUP", 1.0)
    with pytest.raises(WorkerFailed, match=r"before the first step, .* environments 0 to 1 was not ready within 2 s"):
        make_env(f"{HARMFUL}NeverBuilds", num_envs=4)
    assert not multiprocessing.active_children()


def test_build_errors_are_the_same_as_in_one_process() -> None:
    with pytest.raises(PluginError, match="FailsToBuild' cannot be made: ValueError: no display"):
        make_env(f"{HARMFUL}FailsToBuild")
    assert not multiprocessing.active_children()


def test_wrong_actions_and_states_raise() -> None:
    env = make_env(f"{ENVS}:Chain")
    try:
        with pytest.raises(BadEnv, match="step was called before reset"):
            env.step(np.zeros(3, np.int64))
        env.reset(0)
        with pytest.raises(BadEnv, match=r"the actions have shape \(2,\), expected \(3,\)"):
            env.step(np.zeros(2, np.int64))
        with pytest.raises(BadEnv, match="that of 1 workers; use --env-workers 1"):
            env.load_state_dict({"parts": [{}]})
    finally:
        env.close()


def test_async_runner_refuses_env_workers() -> None:
    with pytest.raises(UsageError, match="leave out --env-workers, or use --runner sync"):
        Plan.make(TINY, f"{ENVS}:Chain", {"runner": "async", "env_workers": 2})


@pytest.mark.parametrize(
    ("microseconds", "num_envs", "cores", "workers"),
    [(20, 8, 16, 1), (1_000, 8, 2, 2), (1_000, 8, 16, 8), (1_000, 1, 16, 1), (100, 64, 16, 11)],
)
def test_chooses_number_of_workers_by_step_time(microseconds: float, num_envs: int, cores: int, workers: int) -> None:
    assert fastest_worker_count(microseconds * 1e-6, num_envs, cores) == workers


def test_environments_with_threads_get_no_workers() -> None:
    with pytest.raises(UsageError, match="steps in its own threads; leave out --env-workers"):
        make_env(f"{HARMFUL}Threaded")
    plan = Plan.make(TINY, f"{HARMFUL}Threaded", {**WORKERS, "env_workers": 0})
    chosen, message = choose_env_workers(plan)
    assert chosen.options.env_workers == 1
    assert message.endswith("Threaded steps in its own threads: --env-workers 1")
