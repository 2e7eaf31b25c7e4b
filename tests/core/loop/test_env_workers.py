"""Environment workers: a run in several processes resumes to the same bits, and what fails in one is told."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.errors import BadEnv, PluginError, UsageError, WorkerFailed
from rlplug_core.loop.build import training_env
from rlplug_core.loop.env_timing import choose_env_workers, worthwhile
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import legal
from rlplug_core.protocols import Env
from rlplug_core.runs.api import resume, train
from tests.core.fakes import ENVS, HERE, TINY, assert_same, make_runner, save_and_load

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
WORKERS = {"runner": "sync", "num_envs": 3, "env_workers": 2}


def env_of(env: str, **options: Any) -> Env:
    return training_env(Plan.make(TINY, env, {"total_timesteps": 100, "worker_timeout": 2.0, **WORKERS, **options}))


def test_a_run_stopped_stored_and_gone_on_with_in_new_processes_is_the_run_that_never_stopped() -> None:
    whole, first, again = (make_runner(TINY, **WORKERS, total_timesteps=240) for _ in range(3))
    try:
        whole.run(lambda: None)
        first.run(lambda: setattr(first.clock, "stop", first.clock.steps >= 99))
        assert 99 <= first.clock.steps < 240
        again.load_state_dict(save_and_load(first.state_dict()))
        again.clock.stop = False
        again.run(lambda: None)
        assert_same(save_and_load(whole.state_dict()), save_and_load(again.state_dict()))
    finally:
        for runner in (whole, first, again):
            runner.close()


def test_a_whole_run_resumes(tmp_path: Path) -> None:
    options = {**WORKERS, "total_timesteps": 300, "eval_episodes": 2, "final_eval_episodes": 2}
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path, hooks=False)
    assert resume(run, total_timesteps=450, hooks=False).status == "finished"


@pytest.mark.parametrize("env", ["Chain", "Masked", "Pixels", "Continuous", "Truncated"])
def test_every_kind_of_observation_and_action_travels(env: str) -> None:
    """The first worker's rows are seeded as they are alone: they say the same, whatever the second does."""
    several, alone = env_of(f"{ENVS}:{env}", num_envs=4), env_of(f"{ENVS}:{env}", num_envs=2, env_workers=1)
    try:
        assert (several.spec.obs, several.spec.action) == (alone.spec.obs, alone.spec.action)
        space = alone.spec.action
        space.seed(3)
        now, other = several.reset(3), alone.reset(3)
        for _ in range(30):
            assert_same(first_two(now.obs), other.obs)
            assert_same(first_two(now.final_obs), other.final_obs)
            for name in ("reward", "terminated", "truncated", "is_first", "valid"):
                assert np.array_equal(getattr(now, name)[:2], getattr(other, name)), name
            assert [e for e in now.episodes if e.row < 2] == list(other.episodes)
            actions = np.stack([space.sample() for _ in range(4)])
            actions = legal(space, actions, now.obs["action_mask"]) if env == "Masked" else actions
            now, other = several.step(actions), alone.step(actions[:2])
    finally:
        several.close()


def first_two(tree: Any) -> Any:
    return {name: first_two(part) for name, part in tree.items()} if isinstance(tree, dict) else tree[:2]


FAULTS = {
    f"{ENVS}:CrashingWorker": "CrashingWorker: in step 21 the worker of environment 0 raised RuntimeError: the env",
    f"{ENVS}:Exiting": "in step 21 the worker of environment 0 exited with code 7",
    f"{ENVS}:Hanging": r"in step 21 the worker of environment 0 gave no answer for 2 s \(--worker-timeout",
    f"{HARMFUL}Killed": "in step 21 the worker of environment 0 was killed by SIGKILL",
    f"{HARMFUL}KilledWithChild": "in step 21 the worker of environment 0 was killed by SIGKILL",
    f"{HARMFUL}SimulatorGone": "in step 21 the worker of environment 0 raised EOFError: a simulator went away",
}


@pytest.mark.parametrize("env", FAULTS, ids=lambda env: env.rpartition(":")[2])
def test_a_fault_is_told_with_environment_and_step_and_nobody_is_left(env: str) -> None:
    vector = env_of(env)
    vector.reset(0)
    for _ in range(20):
        vector.step(np.zeros(3, np.int64))
    with pytest.raises(WorkerFailed, match=FAULTS[env]):
        vector.step(np.zeros(3, np.int64))
    assert not multiprocessing.active_children()


def test_a_hang_before_the_first_step_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_core.loop.env_workers.STARTUP", 1.0)
    with pytest.raises(WorkerFailed, match=r"before the first step, .* environment 0 gave no answer for 2 s"):
        env_of(f"{HARMFUL}NeverBuilds")
    assert not multiprocessing.active_children()


def test_build_errors_are_the_same_as_in_one_process() -> None:
    with pytest.raises(PluginError, match="FailsToBuild' cannot be made: ValueError: no display"):
        env_of(f"{HARMFUL}FailsToBuild")
    assert not multiprocessing.active_children()


def test_wrong_actions_and_states_are_refused() -> None:
    env = env_of(f"{ENVS}:Chain")
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


def test_asynchronous_workers_step_environments_of_their_own() -> None:
    with pytest.raises(UsageError, match="leave out --env-workers, or use --runner sync"):
        Plan.make(TINY, f"{ENVS}:Chain", {"runner": "async", "env_workers": 2})


@pytest.mark.parametrize(
    ("microseconds", "num_envs", "cores", "workers"),
    [(20, 8, 16, 1), (1_000, 8, 2, 2), (1_000, 8, 16, 8), (1_000, 1, 16, 1), (100, 64, 16, 11)],
)
def test_as_many_workers_as_are_worth_their_messages(
    microseconds: float, num_envs: int, cores: int, workers: int
) -> None:
    assert worthwhile(microseconds * 1e-6, num_envs, cores) == workers


def test_environments_with_threads_of_their_own_get_no_workers() -> None:
    with pytest.raises(UsageError, match="steps in its own threads; leave out --env-workers"):
        env_of(f"{HARMFUL}Threaded")
    plan = Plan.make(TINY, f"{HARMFUL}Threaded", {**WORKERS, "env_workers": 0})
    chosen, said = choose_env_workers(plan)
    assert chosen.options.env_workers == 1
    assert said.endswith("Threaded steps in its own threads: --env-workers 1")
