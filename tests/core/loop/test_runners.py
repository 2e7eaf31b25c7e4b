"""One inline asynchronous worker equals the synchronous runner; all runners repeat and resume exactly."""

from __future__ import annotations

import ast
import re
from inspect import getsource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.errors import UsageError
from rlplug_core.loop import sync
from rlplug_core.runs.api import train
from tests.core.fakes import ENVS, HERE, TINY, TINY_EPOCHS, TINY_Q, assert_same, make_runner, save_and_load
from tests.tables import for_each

ENV_NAMES = ("Chain", "Truncated", "Masked", "Recall", "Continuous")


def train_runner(steps: int = 0, algorithm: str = TINY, env: str = "Chain", **options: Any) -> Any:
    """Return a runner after its run, or after `steps` env steps."""
    runner = make_runner(algorithm, f"{ENVS}:{env}", **options)
    advance(runner, steps)
    return runner


def advance(runner: Any, steps: int = 0) -> None:
    runner.clock.limit = steps or runner.clock.limit
    runner.run(lambda: None)


def outcome(runner: Any) -> dict[str, Any]:
    """Return the state of a run: weights, optimizer, buffer, environment and episodes."""
    state = runner.state_dict()
    inner = state["workers"]["all"][0] if "workers" in state else state
    learner = {name: value for name, value in state["learner"].items() if name != "_extra_state"}
    optimizers = [optimizer["state"] for optimizer in state["learner"]["_extra_state"]["optimizers"]]
    return {
        "learner": learner,
        "optimizers": optimizers,
        "generator": inner["learner"]["_extra_state"]["generator"],
        "clock": state["clock"],
        **{name: inner[name] for name in ("buffer", "actor", "meter")},
    }


@for_each("env", ENV_NAMES)
@for_each("optimizer", ["rmsprop", "adam"])
def test_one_inline_worker_equals_sync_runner(env: str, optimizer: str) -> None:
    sync = train_runner(env=env, optimizer=optimizer, runner="sync")
    inline = train_runner(env=env, optimizer=optimizer, runner="async", inline=True, workers=1)
    assert sync.name == "sync"
    assert inline.name == "async"
    assert_same(outcome(sync), outcome(inline))
    assert sync.clock.updates > 10
    assert [e for *_, e in sync.episodes()] == [e for *_, e in inline.episodes()]
    assert sync.metrics() == inline.metrics()


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"runner": "async", "inline": True, "workers": 3}])
def test_same_seed_gives_same_run(options: dict[str, Any]) -> None:
    states = [save_and_load(train_runner(**options).state_dict()) for _ in range(2)]
    assert_same(*states)


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"runner": "async", "inline": True}])
def test_other_seed_gives_other_run(options: dict[str, Any]) -> None:
    weights = [train_runner(seed=seed, **options).snapshot().policy.outputs.weight.tolist() for seed in (0, 1, 2)]
    assert weights[0] != weights[1] != weights[2] != weights[0]
    repeated = train_runner(seed=0, **options).snapshot().policy.outputs.weight.tolist()
    assert repeated == weights[0]


def test_inline_workers_differ_and_all_train() -> None:
    runner = train_runner(runner="async", inline=True, workers=3, total_timesteps=300)
    assert list(runner.slots) == [100, 100, 100]
    obs = [worker.actor.state_dict()["env"]["state"]["length"].tolist() for worker in runner.workers]
    assert len({tuple(lengths) for lengths in obs}) > 1
    assert all(worker.clock.updates == 12 for worker in runner.workers)
    assert {rank for _, rank, _ in runner.episodes()} == {0, 1, 2}


CASES = {
    "sync": {"algorithm": TINY, "runner": "sync"},
    "epochs": {"algorithm": TINY_EPOCHS},
    "q": {"algorithm": TINY_Q},
    "q-3-step": {"algorithm": TINY_Q, "n_step": 3, "buffer_size": 13, "num_envs": 1},
    "inline-1": {"algorithm": TINY, "runner": "async", "inline": True, "workers": 1},
    "inline-3": {"algorithm": TINY, "runner": "async", "inline": True, "workers": 3},
    "inline-3-adam": {"algorithm": TINY, "runner": "async", "inline": True, "workers": 3, "optimizer": "adam"},
}


@for_each("stop", [2, 46, 50, 101])
@for_each("case", CASES)
def test_resumed_run_equals_uninterrupted_run(case: str, stop: int) -> None:
    uninterrupted = train_runner(**CASES[case])
    first = train_runner(stop, **CASES[case])
    resumed = make_runner(**CASES[case])
    for _ in range(13):  # a resumed process may have drawn numbers before
        np.random.random()
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed, uninterrupted.clock.limit)
    expected, state = uninterrupted.state_dict(), resumed.state_dict()
    assert expected["clock"].pop("limit") == state["clock"].pop("limit")
    assert_same(expected, state)
    assert uninterrupted.clock.updates == resumed.clock.updates > 5


class StopAt:
    """Stops a run at its n-th update, as a signal between two batches does."""

    def __init__(self, runner: Any, update: int) -> None:
        self.remaining = update
        self.clock = runner.clock
        for learner in learners(runner):
            learner.update = self.wrap(learner.update)

    def wrap(self, update: Any) -> Any:
        def count(batch: Any, clock: Any) -> Any:
            self.remaining -= 1
            if self.remaining == 0:
                self.clock.stop = True
            return update(batch, clock)

        return count


def learners(runner: Any) -> list[Any]:
    return [worker.learner for worker in runner.workers] if runner.name == "async" else [runner.learner]


@for_each("case", ["q", "q-inline", "sync", "inline-3"])
@for_each("update", [1, 2, 5, 6])
def test_resumes_exactly_after_stop_between_batches(case: str, update: int) -> None:
    if case == "q-inline":
        options: dict[str, Any] = {**CASES["q"], "algorithm": f"{HERE}:TinyQAsync", "runner": "async", "inline": True}
    else:
        options = CASES[case]
    uninterrupted = make_runner(**options)
    first = make_runner(**options)
    resumed = make_runner(**options)
    advance(uninterrupted)
    StopAt(first, update)
    advance(first)
    assert first.clock.updates == update  # not one batch more
    resumed.load_state_dict(save_and_load(first.state_dict()))
    advance(resumed)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())


REFUSED = {
    "async": ({"runner": "async", "workers": 2}, "each worker would train its own copy"),
    "inline": ({"runner": "async", "inline": True}, "each worker would train its own copy"),
    "learners": ({"learners": 2}, "each learner would train it with its own gradient only"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parameter_without_optimizer_raises_with_several_processes(case: str, tmp_path: Path) -> None:
    """Each process would train its own copy, which evaluations and checkpoints do not use."""
    options, reason = REFUSED[case]
    message = rf"trains 'scale' without an optimizer, so {reason}.*--runner sync"
    with pytest.raises(UsageError, match=message):
        train(f"{HERE}:OwnOptimizer", f"{ENVS}:Chain", {"total_timesteps": 100, **options}, out=tmp_path, hooks=False)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(UsageError, match=message):  # a resume of an older run
        train_runner(algorithm=f"{HERE}:OwnOptimizer", **options)


def test_one_process_trains_parameter_without_optimizer() -> None:
    for options in ({"runner": "sync"}, {"runner": "decoupled", "inline": True}):
        assert train_runner(algorithm=f"{HERE}:OwnOptimizer", **options).clock.updates > 10


def plain_functions(source: str) -> list[str]:
    """Return the functions of some code without docstrings and types."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if ast.get_docstring(function):
            del function.body[0]
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
    return [ast.unparse(function) for function in functions]


def test_design_page_shows_the_loop() -> None:
    page = Path(__file__).parents[3] / "docs" / "design.md"
    code = re.search(r"```text\n(def loop\(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    source = "\n".join(map(getsource, (sync.loop, sync.step_and_train, sync.train)))
    assert plain_functions(code[1]) == plain_functions(source)
