"""The length of the path from the loop to changed weights: one PPO update, traced call by call.

The path is every file of rlplug that runs between `loop` in `loop/sync.py` and the rule that changes
the weights, in the second rollout and update: the first ones make buffers and look up fast forms. It is counted
as it runs, with the fast room as one file with one function, and with losses for autograd.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import rlplug_algos
import rlplug_core
from bench.options_path import is_climb, stays
from rlplug_core.clock import Clock
from rlplug_core.fast.losses import FastLosses
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.api import train
from tests.conftest import loops_by

CORE = Path(rlplug_core.__file__).parent
ALGOS = Path(rlplug_algos.__file__).parent

#: The most files and functions of rlplug, without environments, that run between the loop and changed weights: as
#: run, and by autograd. `bench/reading_path.py` shows them for more algorithms, docs/design.md quotes it.
LIMITS = {
    ("plain", "as run"): (20, 75),
    ("plain", "autograd"): (20, 72),
    ("normalized and scheduled", "as run"): (24, 95),
    ("normalized and scheduled", "autograd"): (22, 90),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalized and scheduled": {
        "normalize_reward": True,
        "net.normalize_obs": True,
        "clip_range": "linear(0.3,0.1)",
    },
}


@cache
def name_of(code: CodeType) -> str | None:
    """Return the file of some code as the packages name it, or None for other packages and test environments."""
    path = Path(code.co_filename)
    if path.is_relative_to(ALGOS):
        return path.relative_to(ALGOS).as_posix()
    if path.is_relative_to(CORE / "fast"):
        return "fast"
    if path.is_relative_to(CORE) and not path.is_relative_to(CORE / "testing"):
        return path.relative_to(CORE).as_posix()
    return None


class Trace:
    """Records the files that run, and their calls of other files, until the weights have changed."""

    def __init__(self, case: tuple[str, str]) -> None:
        self.case = case
        self.files: set[str] = set()
        self.calls: set[tuple[str, str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (name := name_of(frame.f_code)) is None:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and name_of(caller.f_code) is None:
            caller = caller.f_back
        if caller is not None:
            function = "" if name == "fast" else frame.f_code.co_qualname
            self.calls.add((str(name_of(caller.f_code)), name, function))


@pytest.fixture(scope="module", params=LIMITS, ids=", ".join)
def trace(request: pytest.FixtureRequest) -> Iterator[Trace]:
    """Trace one rollout with truncated episodes, long enough to draw new random numbers, and its update."""
    case, way = request.param
    # A loop by numba would hide the functions that it replaces.
    with loops_by("numpy"), pytest.MonkeyPatch.context() as patch:
        if way == "autograd":
            for door in ("call", "without_gradient"):
                patch.setattr(FastLosses, door, lambda self, loss, learner, *args: loss(learner, *args))
        yield trace_update(request.param, OPTIONS[case])


def trace_update(case: tuple[str, str], options: dict[str, Any]) -> Trace:
    options = {
        "num_envs": 2, "n_steps": 300, "batch_size": 100, "n_epochs": 1, "target_kl": 1.0, "anneal_lr": False,
        "total_timesteps": 1200, **options,
    }  # fmt: skip
    plan = Plan.make("ppo", "rlplug_core.testing.envs:Truncated", options)
    runner: Any = build(plan, Clock(1200))

    def until_half() -> None:
        runner.clock.stop = runner.clock.steps >= 600

    runner.run(until_half)
    runner.clock.stop = False
    before = runner.learner.optimizers[0].flat.clone()
    profile = Trace(case)
    sys.setprofile(profile)
    try:
        runner.run(lambda: None)
    finally:
        sys.setprofile(None)
    assert not torch.equal(runner.learner.optimizers[0].flat, before)
    return profile


def test_trace_reaches_from_the_loop_to_the_weights(trace: Trace) -> None:
    """Otherwise the counts would miss a part."""
    functions = {(name, function) for _, name, function in trace.calls}
    assert {
        ("loop/sync.py", "loop"), ("loop/actor.py", "Actor.step"), ("acting/policy_agent.py", "PolicyAgent.act"),
        ("buffers/rollout.py", "RolloutBuffer.add"), ("policy_gradient/ppo.py", "PPO.learn"),
        ("learning/estimators.py", "gae"),
        ("batches.py", "Rollout.samples"), ("policy_gradient/ppo.py", "PPO.loss"),
        ("learning/optimizer.py", "Optimizer.minimize"),
        ("learning/update_rules.py", "Adam.step"),
    } <= functions  # fmt: skip


def test_ppo_runs_through_few_files_and_functions(trace: Trace) -> None:
    """Every file counts."""
    functions = {(name, function) for _, name, function in trace.calls}
    files = sorted(trace.files)
    limits = LIMITS[trace.case]
    assert len(files) <= limits[0], files
    assert len(functions) <= limits[1], sorted(functions)


def test_metrics_are_stored_without_reading_them(trace: Trace) -> None:
    """The loop adds results to a list; `loop/events.py` is not on the path."""
    assert "loop/events.py" not in trace.files
    assert {function for _, name, function in trace.calls if function.startswith("Meter")} == {"Meter.add"}


def test_ppo_is_fast_unless_autograd_is_required(trace: Trace) -> None:
    """Acting is fast in both cases; only a fast loss is called through the door."""
    called = {(caller, callee) for caller, callee, _ in trace.calls}
    assert (("fast", "policy_gradient/ppo.py") in called) == (trace.case[1] == "as run")


def test_stack_from_train_to_the_weights_is_short(tmp_path: Path) -> None:
    """Every file, except leaves, on the stack while the actor steps, a step is stored or the parameters change."""
    from rlplug_core.buffers.rollout import RolloutBuffer
    from rlplug_core.learning.update_rules import Adam
    from rlplug_core.loop.actor import Actor

    # The code of a kernel is that of `accelerator.kernel`, so its step is found by the function inside.
    stations = {Actor.step.__code__, RolloutBuffer.add.__code__, Adam.step.__code__}
    step = unwrap(Adam.step)
    names: set[str] = set()

    def watch(frame: FrameType | None, event: str, _: Any) -> None:
        if event == "call" and frame is not None and frame.f_code in stations:
            if frame.f_locals.get("function", step) is not step:
                return
            while frame is not None:
                names.update({name_of(frame.f_code)} - {None})  # type: ignore[arg-type]
                frame = frame.f_back

    options = {
        "total_timesteps": 64,
        "num_envs": 1,
        "n_steps": 16,
        "n_epochs": 1,
        "batch_size": 16,
        "eval_episodes": 1,
        "final_eval_episodes": 0,
    }
    sys.setprofile(watch)
    try:
        train("ppo", "rlplug_core.testing.envs:Chain", options, out=tmp_path, hooks=False)
    finally:
        sys.setprofile(None)
    assert {
        "runs/api.py", "loop/sync.py", "loop/actor.py", "buffers/rollout.py", "policy_gradient/ppo.py",
        "learning/optimizer.py",
    } <= names  # fmt: skip
    assert len(names) <= 12, names


def test_options_become_typed_early() -> None:
    way = stays()
    assert len(way) <= 30, way
    assert not [step for step in way if is_climb(*step)]
