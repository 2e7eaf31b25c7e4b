"""The decoupled runner in line: without a lag it is synchronous, its lag never changes, and it resumes exactly."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.errors import UsageError
from tests.core.fakes import ENVS, HERE, TINY, TINY_EPOCHS, TINY_Q, assert_same, make_runner, save_and_load
from tests.tables import for_each

ALONE = {"runner": "decoupled", "inline": True, "actors": 1, "max_lag": 0}
ENV_NAMES = ("Chain", "Truncated", "Masked", "Recall", "Continuous")


def trained(steps: int = 0, env: str = "Chain", **options: Any) -> Any:
    """A runner after its run, or after `steps` env steps."""
    runner = make_runner(env=f"{ENVS}:{env}", **options)
    advance(runner, steps)
    return runner


def advance(runner: Any, steps: int = 0) -> None:
    runner.clock.limit = steps or runner.clock.limit
    runner.run(lambda: None)


def outcome(runner: Any) -> dict[str, Any]:
    """Everything that a run with one actor has come to."""
    state = runner.state_dict()
    one = runner.name == "decoupled"
    return {
        "learner": state["learner"], "clock": state["clock"], "globals": state["globals"],
        "buffer": state["buffer"]["0"] if one else state["buffer"],
        "actor": state["actors"]["all"][0] if one else state["actor"],
        "meter": state["meter"]["updates"] if one else state["meter"],
    }  # fmt: skip


@for_each("env", ENV_NAMES)
@for_each("chunk_steps", [None, 1, 2])
def test_without_a_lag_it_is_the_synchronous_runner(env: str, chunk_steps: int | None) -> None:
    sync = trained(env=env, algorithm=TINY, runner="sync")
    decoupled = trained(env=env, algorithm=TINY, **ALONE, chunk_steps=chunk_steps)
    assert (sync.name, decoupled.name) == ("sync", "decoupled")
    assert_same(outcome(sync), outcome(decoupled))
    assert sync.clock.updates > 10
    assert [e for *_, e in sync.episodes()] == [e for *_, e in decoupled.episodes()]
    lags = {"perf/policy_lag": 0.0, "perf/policy_lag_max": 0.0}
    assert {**sync.metrics(), **lags} == decoupled.metrics()


def test_without_a_lag_a_replay_is_the_synchronous_one_step_by_step() -> None:
    sync = trained(algorithm=TINY_Q, runner="sync")
    assert_same(outcome(sync), outcome(trained(algorithm=TINY_Q, **ALONE, chunk_steps=1)))
    assert sync.clock.updates > 50


@pytest.mark.parametrize(("actors", "max_lag"), [(1, 0), (1, 3), (2, 0), (2, 1), (3, None)])
def test_the_lag_is_what_was_asked_for_and_never_changes(actors: int, max_lag: int | None) -> None:
    runner = make_runner(TINY, runner="decoupled", inline=True, actors=actors, max_lag=max_lag, total_timesteps=400)
    lags: list[int] = []
    runner.run(lambda: lags.extend(runner.lags) or runner.lags.clear())
    lag = 2 * actors - 1 if max_lag is None else max_lag
    assert lags[lag:] == [lag] * (len(lags) - lag)
    assert lags[:lag] == list(range(lag))  # the first chunks waited for one another
    assert len(lags) > 30


def test_a_lag_makes_another_run() -> None:
    weights = [trained(algorithm=TINY, **{**ALONE, "max_lag": lag}).snapshot().policy.outputs.weight for lag in (0, 1)]
    assert (weights[0] != weights[1]).any()


def test_actors_differ_and_all_take_part() -> None:
    runner = trained(algorithm=TINY, runner="decoupled", inline=True, actors=3, total_timesteps=300)
    obs = [actor.state_dict()["env"]["state"]["length"].tolist() for actor in runner.fleet.actors]
    assert len({tuple(lengths) for lengths in obs}) > 1
    assert {rank for _, rank, _ in runner.episodes()} == {0, 1, 2}
    assert sorted(runner.buffer.parts) == [0, 1, 2]


CASES: dict[str, dict[str, Any]] = {
    "one": {"algorithm": TINY, "actors": 1, "max_lag": 0},
    "lag": {"algorithm": TINY, "actors": 1, "max_lag": 2},
    "three": {"algorithm": TINY, "actors": 3, "chunk_steps": 8},
    "epochs": {"algorithm": TINY_EPOCHS, "actors": 2, "chunk_steps": 3},
    "q": {"algorithm": TINY_Q, "actors": 2, "max_lag": 1, "chunk_steps": 6},
}


def decoupled(case: str) -> Any:
    return make_runner(**{"runner": "decoupled", "inline": True, **CASES[case]})


@for_each("stop", [2, 46, 50, 101])
@for_each("case", CASES)
def test_stopped_stored_and_resumed_it_is_the_run_that_never_stopped(case: str, stop: int) -> None:
    whole, first, resumed = decoupled(case), decoupled(case), decoupled(case)
    advance(whole)
    advance(first, stop)
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed, whole.clock.limit)
    expected, ours = whole.state_dict(), resumed.state_dict()
    assert expected["clock"].pop("limit") == ours["clock"].pop("limit")
    assert_same(expected, ours)
    assert whole.clock.updates == resumed.clock.updates > 5


def test_an_algorithm_that_does_not_correct_for_a_lag_is_refused_with_a_way_out() -> None:
    sentence = (
        ".*:TinySync does not run under 'decoupled': its loss does not correct for policy lag \\(those of impala "
        "and appo do\\); use --runner sync"
    )
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        make_runner(f"{HERE}:TinySync", runner="decoupled")


class StopAt:
    """Asks a run to stop at its n-th update, as a signal between two batches would."""

    def __init__(self, runner: Any, update: int) -> None:
        self.left, self.runner, self.update = update, runner, runner.learner.update
        runner.learner.update = self

    def __call__(self, batch: Any, clock: Any) -> Any:
        self.left -= 1
        self.runner.clock.stop = self.left == 0
        return self.update(batch, clock)


@for_each("case", ["one", "three", "q"])
@for_each("update", [1, 2, 5, 6])
def test_a_stop_between_two_batches_leaves_the_rest_owed(case: str, update: int) -> None:
    whole, first, resumed = decoupled(case), decoupled(case), decoupled(case)
    advance(whole)
    StopAt(first, update)
    advance(first)
    assert first.clock.updates == update  # not one batch more
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed)
    assert_same(whole.state_dict(), resumed.state_dict())
