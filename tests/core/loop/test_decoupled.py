"""The inline decoupled runner equals the synchronous one without lag, keeps its lag, and resumes exactly."""

from __future__ import annotations

from typing import Any

import pytest

from rlplug_core.errors import UsageError
from tests.core.fakes import ENVS, HERE, TINY, TINY_EPOCHS, TINY_Q, assert_same, make_runner, save_and_load
from tests.tables import for_each

WITHOUT_LAG = {"runner": "decoupled", "inline": True, "actors": 1, "max_lag": 0}
ENV_NAMES = ("Chain", "Truncated", "Masked", "Recall", "Continuous")


def train_runner(steps: int = 0, env: str = "Chain", **options: Any) -> Any:
    """Return a runner after its run, or after `steps` env steps."""
    runner = make_runner(env=f"{ENVS}:{env}", **options)
    advance(runner, steps)
    return runner


def advance(runner: Any, steps: int = 0) -> None:
    runner.clock.limit = steps or runner.clock.limit
    runner.run(lambda: None)


def outcome(runner: Any) -> dict[str, Any]:
    """Return the state of a run with one actor."""
    state = runner.state_dict()
    is_decoupled = runner.name == "decoupled"
    return {
        "learner": state["learner"],
        "clock": state["clock"],
        "globals": state["globals"],
        "buffer": state["buffer"]["0"] if is_decoupled else state["buffer"],
        "actor": state["actors"]["all"][0] if is_decoupled else state["actor"],
        "meter": state["meter"]["updates"] if is_decoupled else state["meter"],
    }


@for_each("env", ENV_NAMES)
@for_each("chunk_steps", [None, 1, 2])
def test_equals_sync_runner_without_lag(env: str, chunk_steps: int | None) -> None:
    sync = train_runner(env=env, algorithm=TINY, runner="sync")
    inline = train_runner(env=env, algorithm=TINY, **WITHOUT_LAG, chunk_steps=chunk_steps)
    assert (sync.name, inline.name) == ("sync", "decoupled")
    assert_same(outcome(sync), outcome(inline))
    assert sync.clock.updates > 10
    assert [e for *_, e in sync.episodes()] == [e for *_, e in inline.episodes()]
    lags = {"perf/policy_lag": 0.0, "perf/policy_lag_max": 0.0}
    assert {**sync.metrics(), **lags} == inline.metrics()


def test_replay_equals_sync_runner_without_lag() -> None:
    sync = train_runner(algorithm=TINY_Q, runner="sync")
    assert_same(outcome(sync), outcome(train_runner(algorithm=TINY_Q, **WITHOUT_LAG, chunk_steps=1)))
    assert sync.clock.updates > 50


@pytest.mark.parametrize(("actors", "max_lag"), [(1, 0), (1, 3), (2, 0), (2, 1), (3, None)])
def test_lag_is_constant(actors: int, max_lag: int | None) -> None:
    runner = make_runner(TINY, runner="decoupled", inline=True, actors=actors, max_lag=max_lag, total_timesteps=400)
    lags: list[int] = []

    def move_lags() -> None:
        lags.extend(runner.lags)
        runner.lags.clear()

    runner.run(move_lags)
    lag = 2 * actors - 1 if max_lag is None else max_lag
    assert lags[lag:] == [lag] * (len(lags) - lag)
    assert lags[:lag] == list(range(lag))  # the first chunks wait for each other
    assert len(lags) > 30


def test_lag_changes_the_weights() -> None:
    runners = [train_runner(algorithm=TINY, **{**WITHOUT_LAG, "max_lag": lag}) for lag in (0, 1)]
    weights = [runner.snapshot().policy.outputs.weight for runner in runners]
    assert (weights[0] != weights[1]).any()


def test_actors_differ_and_all_act() -> None:
    runner = train_runner(algorithm=TINY, runner="decoupled", inline=True, actors=3, total_timesteps=300)
    obs = [actor.state_dict()["env"]["state"]["length"].tolist() for actor in runner.fleet.actors]
    assert len({tuple(lengths) for lengths in obs}) > 1
    assert {rank for _, rank, _ in runner.episodes()} == {0, 1, 2}
    assert sorted(runner.buffer.buffers) == [0, 1, 2]


CASES: dict[str, dict[str, Any]] = {
    "one": {"algorithm": TINY, "actors": 1, "max_lag": 0},
    "lag": {"algorithm": TINY, "actors": 1, "max_lag": 2},
    "three": {"algorithm": TINY, "actors": 3, "chunk_steps": 8},
    "epochs": {"algorithm": TINY_EPOCHS, "actors": 2, "chunk_steps": 3},
    "q": {"algorithm": TINY_Q, "actors": 2, "max_lag": 1, "chunk_steps": 6},
}


def make_decoupled(case: str) -> Any:
    return make_runner(**{"runner": "decoupled", "inline": True, **CASES[case]})


@for_each("stop", [2, 46, 50, 101])
@for_each("case", CASES)
def test_resumed_run_equals_uninterrupted_run(case: str, stop: int) -> None:
    uninterrupted = make_decoupled(case)
    first = make_decoupled(case)
    resumed = make_decoupled(case)
    advance(uninterrupted)
    advance(first, stop)
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed, uninterrupted.clock.limit)
    expected, state = uninterrupted.state_dict(), resumed.state_dict()
    assert expected["clock"].pop("limit") == state["clock"].pop("limit")
    assert_same(expected, state)
    assert uninterrupted.clock.updates == resumed.clock.updates > 5


def test_algorithm_without_lag_correction_raises() -> None:
    message = (
        ".*:TinySync does not run under 'decoupled': its loss does not correct for policy lag \\(those of impala "
        "and appo do\\); use --runner sync"
    )
    with pytest.raises(UsageError, match=f"^{message}$"):
        make_runner(f"{HERE}:TinySync", runner="decoupled")


class StopAt:
    """Stops a run at its n-th update, as a signal between two batches does."""

    def __init__(self, runner: Any, update: int) -> None:
        self.remaining = update
        self.runner = runner
        self.update = runner.learner.update
        runner.learner.update = self

    def __call__(self, batch: Any, clock: Any) -> Any:
        self.remaining -= 1
        self.runner.clock.stop = self.remaining == 0
        return self.update(batch, clock)


@for_each("case", ["one", "three", "q"])
@for_each("update", [1, 2, 5, 6])
def test_resumes_exactly_after_stop_between_batches(case: str, update: int) -> None:
    uninterrupted = make_decoupled(case)
    first = make_decoupled(case)
    resumed = make_decoupled(case)
    advance(uninterrupted)
    StopAt(first, update)
    advance(first)
    assert first.clock.updates == update  # not one batch more
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())
