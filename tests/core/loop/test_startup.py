"""While processes start: a run that is to stop does not wait for them, and one that waits in vain says so."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.errors import WorkerFailed
from tests.core.fakes import ENVS, HERE, RUNNERS, TINY, assert_same, make_runner, save_and_load

NEVER = f"{HERE}:NeverBuilds".replace("fakes.py", "harmful.py")


def stopped(begin: Any = None, **options: Any) -> Any:
    """The state of a run that was told to stop while its processes are being built, which they will be for ever."""
    runner = make_runner(TINY, NEVER, worker_timeout=3.0, **options)
    try:
        if begin is not None:
            runner.load_state_dict(begin)
        runner.clock.stop = True
        with pytest.MonkeyPatch.context() as patch:  # who waits for them is told so within seconds
            patch.setattr("rlplug_core.loop.async_processes.STARTUP", 3.0)
            runner.run(lambda: None)
            return save_and_load(runner.state_dict())
    finally:
        runner.close()


@pytest.mark.parametrize("case", RUNNERS)
def test_a_process_that_is_never_ready_is_told_as_such_and_has_the_longer_time(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlplug_core.loop.async_processes.STARTUP", 0.5)
    who = {"async": "worker [01]", "decoupled": "actor [01]", "learners": "learner 1"}[case]
    runner = make_runner(TINY, NEVER, worker_timeout=2.0, **RUNNERS[case])
    sentence = rf"{who} was not ready within 2 s; .* was built .*\(--worker-timeout waits longer\)"
    try:
        with pytest.raises(WorkerFailed, match=sentence):
            runner.run(lambda: None)
    finally:
        runner.close()


def trained(begin: Any, limit: int, **options: Any) -> Any:
    runner = make_runner(TINY, f"{ENVS}:Chain", **options)
    try:
        if begin is not None:
            runner.load_state_dict(begin)
        runner.clock.limit = limit
        runner.run(lambda: None)
        return save_and_load(runner.state_dict())
    finally:
        runner.close()


@pytest.mark.parametrize("case", RUNNERS)
def test_a_stop_does_not_wait_for_processes_that_start(case: str) -> None:
    options = RUNNERS[case]
    begun = stopped(**options)
    assert begun["clock"]["steps"] == 0
    halfway = trained(begun, 200, **options)
    assert halfway["clock"]["steps"] >= 200
    assert_same(halfway, stopped(halfway, **options))
    assert trained(halfway, 400, **options)["clock"]["updates"] > halfway["clock"]["updates"]
