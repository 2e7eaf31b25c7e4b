"""A stop does not wait for processes that start, and a process that never starts is reported."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.errors import WorkerFailed
from tests.core.fakes import ENVS, HERE, RUNNERS, TINY, assert_same, make_runner, save_and_load

NEVER = f"{HERE}:NeverBuilds".replace("fakes.py", "harmful.py")


def stop_during_start(state: Any = None, **options: Any) -> Any:
    """Return the state of a run that is stopped while its processes start, which takes forever."""
    runner = make_runner(TINY, NEVER, worker_timeout=3.0, **options)
    try:
        if state is not None:
            runner.load_state_dict(state)
        runner.clock.stop = True
        with pytest.MonkeyPatch.context() as patch:  # a wait for them fails within seconds
            patch.setattr("rlplug_core.loop.child_process.STARTUP", 3.0)
            runner.run(lambda: None)
            return save_and_load(runner.state_dict())
    finally:
        runner.close()


@pytest.mark.parametrize("case", RUNNERS)
def test_process_that_is_never_ready_is_reported(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_core.loop.child_process.STARTUP", 0.5)
    name = {"async": "worker [01]", "decoupled": "actor [01]", "learners": "learner 1"}[case]
    runner = make_runner(TINY, NEVER, worker_timeout=2.0, **RUNNERS[case])
    message = rf"{name} was not ready within 2 s; .* was built .*\(--worker-timeout waits longer\)"
    try:
        with pytest.raises(WorkerFailed, match=message):
            runner.run(lambda: None)
    finally:
        runner.close()


def train_until(state: Any, limit: int, **options: Any) -> Any:
    runner = make_runner(TINY, f"{ENVS}:Chain", **options)
    try:
        if state is not None:
            runner.load_state_dict(state)
        runner.clock.limit = limit
        runner.run(lambda: None)
        return save_and_load(runner.state_dict())
    finally:
        runner.close()


@pytest.mark.parametrize("case", RUNNERS)
def test_stop_does_not_wait_for_starting_processes(case: str) -> None:
    options = RUNNERS[case]
    initial = stop_during_start(**options)
    assert initial["clock"]["steps"] == 0
    halfway = train_until(initial, 200, **options)
    assert halfway["clock"]["steps"] >= 200
    assert_same(halfway, stop_during_start(halfway, **options))
    assert train_until(halfway, 400, **options)["clock"]["updates"] > halfway["clock"]["updates"]
