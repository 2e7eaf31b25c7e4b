"""Controllers and limits stop a run before its total or scale its learning rates, and give a reason."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_core.clock import Clock, Steering
from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.loop.async_inline import share
from rlplug_core.loop.controllers import (
    EarlyStopping,
    EarlyStoppingConfig,
    Limits,
    Plateau,
    PlateauConfig,
    TargetReturn,
    TargetReturnConfig,
    controllers_of,
)
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.loop.worker import WorkerProcess, WorkerTask
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.journal import read
from rlplug_core.seeds import preserve_generators
from rlplug_core.types import Episode
from tests.core.fakes import ENVS, TINY, make_runner, save_and_load
from tests.core.loop.test_events import Recorder, run

HERE = Path(__file__).resolve()
SHORT = {
    "total_timesteps": 400,
    "num_envs": 2,
    "eval_every": 40,
    "eval_episodes": 1,
    "final_eval_episodes": 1,
    "runner": "sync",
}


def feed(controller: Any, returns: list[float], clock: Clock | None = None) -> list[tuple[float, bool]]:
    """Return scale and stop after each evaluation."""
    clock = clock or Clock(100)
    results = []
    for value in returns:
        controller.evaluated(Evaluation((value,), (1,)), Steering(clock))
        results.append((clock.scale, clock.stop))
    return results


def test_plateau_scales_learning_rates_when_patience_ends() -> None:
    """It compares with the best evaluation, not with the last one; each scaling restarts the patience."""
    returns = [1.0, 3.0, 2.0, 2.5, 2.9, 3.0, 3.1, 3.0, 3.0]
    scales = [scale for scale, _ in feed(Plateau(PlateauConfig(2, 0.5)), returns)]
    assert scales == [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_improvement_must_exceed_the_margin() -> None:
    scales = [scale for scale, _ in feed(Plateau(PlateauConfig(2, 0.1, 1.0)), [0.0, 1.0, 1.01, 2.01, 2.02])]
    assert scales == [1, 1, 1, 1, 1]
    scales = [scale for scale, _ in feed(Plateau(PlateauConfig(2, 0.1, 1.0)), [0.0, 0.6, 1.0, 1.1])]
    assert scales == pytest.approx([1, 1, 0.1, 0.1])


def test_patience_starts_at_a_step() -> None:
    """Evaluations before it do not count, not even the best one."""
    controller = EarlyStopping(EarlyStoppingConfig(2, 0.0, 30))
    clock = Clock(100)
    stops = []
    for steps, value in zip(range(10, 80, 10), [9.0, 1.0, 5.0, 6.0, 5.0, 5.0, 5.0], strict=True):
        clock.steps = steps
        controller.evaluated(Evaluation((value,), (1,)), Steering(clock))
        stops.append(clock.stop)
    assert stops == [False, False, False, False, False, True, True]
    options = RunOptions(lr_patience=1, early_stopping_patience=1, patience_start=30)
    assert [each.patience.start for each in controllers_of(options)] == [30, 30]  # type: ignore[attr-defined]


def test_early_stop_stops_once() -> None:
    """A run that is resumed after the stop is not stopped again."""
    controller = EarlyStopping(EarlyStoppingConfig(2))
    clock = Clock(100)
    assert [stop for _, stop in feed(controller, [5.0, 4.0, 4.0], clock)] == [False, False, True]
    assert controller.reason == "2 evaluations did not improve on 5.0 (--early-stopping-patience 2)"
    clock.stop = False
    assert not any(stop for _, stop in feed(controller, [4.0] * 5, clock))


def test_limits_stop_once() -> None:
    limits = Limits(episodes=3, seconds=10.0)
    clock = Clock(100)
    for episodes, seconds in ((0, 0.0), (2, 9.9)):
        limits.check(episodes, seconds, clock)
        assert not clock.stop
    limits.check(4, 9.9, clock)
    assert clock.stop
    assert limits.reason == "4 episodes have ended (--max-episodes 3)"
    clock.stop = False
    limits.check(9, 99.0, clock)
    assert not clock.stop
    seconds = Limits(seconds=10.0)
    seconds.check(0, 10.0, clock)
    assert clock.stop
    assert seconds.reason == "10 seconds have passed (--max-seconds 10)"


def test_default_limits_never_stop() -> None:
    clock = Clock(100)
    Limits().check(10**9, 1e9, clock)
    assert not clock.stop


@pytest.mark.parametrize(
    "make",
    [
        lambda: TargetReturn(TargetReturnConfig(4.0)),
        lambda: Plateau(PlateauConfig(3, 0.5, 0.1)),
        lambda: EarlyStopping(EarlyStoppingConfig(3, 0.1)),
    ],
    ids=["target", "plateau", "early"],
)
def test_controller_resumes_exactly(make: Any) -> None:
    returns = [1.0, 3.0, 2.0, 3.05, 2.0, 3.0, 3.2, 3.0, 3.0, 3.0, 5.0]
    expected = feed(make(), returns)
    assert expected[0] != expected[-1]
    for split in range(len(returns)):
        first = make()
        resumed = make()
        clock = Clock(100)
        results = feed(first, returns[:split], clock)
        resumed.load_state_dict(save_and_load(first.state_dict()))
        assert results + feed(resumed, returns[split:], clock) == expected


def test_options_create_controllers() -> None:
    assert controllers_of(RunOptions()) == []
    controllers = controllers_of(
        RunOptions(target_return=3.0, lr_patience=4, lr_factor=0.1, early_stopping_patience=5, min_delta=2)
    )
    target, plateau, early = controllers
    assert isinstance(target, TargetReturn)
    assert isinstance(plateau, Plateau)
    assert isinstance(early, EarlyStopping)
    assert (target.target, plateau.factor, plateau.patience.patience, plateau.patience.margin) == (3.0, 0.1, 4, 2)
    assert (early.patience.patience, early.patience.margin) == (5, 2)


# In runs.


def test_plateau_scales_a_run() -> None:
    sink = Recorder([5.0, 4.0, 4.0, 4.0, 4.0])
    events = run(sink, eval_every=40, lr_patience=2, lr_factor=0.5, total_timesteps=200)
    assert events.clock.scale == 0.25
    assert events.ended == ""


@pytest.mark.parametrize("options", [{"inline": True}, {}], ids=["inline", "processes"])
def test_workers_follow_the_scale(options: dict[str, Any]) -> None:
    """A scale of 0 leaves the weights unchanged, in this process and in others."""
    runner = make_runner(TINY, total_timesteps=200, runner="async", workers=2, **options)
    before = runner.snapshot().optim.flat.clone()
    runner.clock.scale = 0.0
    try:
        runner.run(lambda: None)
        after = runner.snapshot().optim.flat
    finally:
        runner.close()
    assert runner.clock.updates > 10
    assert (before == after).all()
    assert runner.clock.scale == 0.0


def ends(run: Run) -> list[dict[str, Any]]:
    return [dict(record.data) for record in read(run.journal) if record.kind == "end"]


@pytest.mark.parametrize("runner", [{"runner": "sync"}, {"runner": "async", "inline": True}], ids=["sync", "inline"])
def test_max_episodes_stops_at_the_last_episode(runner: dict[str, Any], tmp_path: Path) -> None:
    """The run ends at the vector step that ends the last episode, so it repeats on any machine."""
    steps = []
    for name in ("first", "second"):
        run = train(TINY, f"{ENVS}:Chain", {**SHORT, **runner, "max_episodes": 5}, out=tmp_path, name=name, hooks=False)
        episodes = [record.data for record in read(run.journal) if record.kind == "episodes"]
        episode_steps = [step for data in episodes for step in data["steps"]]
        (end,) = ends(run)
        steps.append(episode_steps)
        assert 5 <= len(episode_steps) <= 6
        assert max(episode_steps) == episode_steps[4]
        count = len(episode_steps)
        assert end["reason"] == f"stopped at step {episode_steps[4]}: {count} episodes have ended (--max-episodes 5)"
        assert end["status"] == run.status == "finished"
    assert steps[0] == steps[1]


@pytest.mark.parametrize(("max_episodes", "reports"), [(5, True), (0, False)])
def test_worker_reports_possible_last_episode_at_once(max_episodes: int, reports: bool) -> None:
    plan = Plan.make(TINY, f"{ENVS}:Chain", {**SHORT, "runner": "async", "workers": 1, "max_episodes": max_episodes})
    shared = share(plan.make_learner(plan.make_env(1).spec), lambda tensor: tensor, nullcontext)
    counts = {name: torch.zeros(size, dtype=torch.int64) for name, size in (("slots", 1), ("flags", 3))}
    task = WorkerTask(PlanWords.of(plan), 0, shared=shared, scales=torch.ones(1, dtype=torch.float64), **counts)
    parent, child = Pipe()
    with parent, child, torch_settings(1), preserve_generators():
        work = WorkerProcess(task, child)
        work.next_tick = math.inf  # its usual report is far away
        work.poll()
        assert not parent.poll()
        work.worker.actor.episodes.append((3, Episode(0, 1.0, 3)))
        work.poll()
        assert parent.poll() == reports


def test_seconds_of_all_sessions_count() -> None:
    """The time before a resume is in the checkpoint."""
    sink = Recorder()
    assert run(sink, checkpoint_every=100, max_seconds=60.0).ended == ""
    state: Any = next(components for kind, _, components in sink.checkpoints if kind == "step")
    state["events"]["wall"] = 61.0
    resumed = run(Recorder(), max_seconds=60.0, state=state)
    assert resumed.ended == "61 seconds have passed (--max-seconds 60)"
    assert resumed.clock.steps < 200
    state["events"]["limits"]["reason"] = resumed.ended
    assert run(Recorder(), max_seconds=60.0, state=state).clock.steps == 200  # a limit stops a run once


def test_target_return_finishes_the_run(tmp_path: Path) -> None:
    """With a final evaluation, and a message for a resume."""
    run = train(TINY, f"{ENVS}:Chain", {**SHORT, "target_return": -5.0}, out=tmp_path, name="done", hooks=False)
    (end,) = ends(run)
    assert end["status"] == "finished"
    assert end["reason"].startswith("stopped at step 40: an evaluation reached ")
    assert [record.kind for record in read(run.journal)].count("final_eval") == 1
    with pytest.raises(
        UsageError, match=r"done is finished, stopped at step 40: an evaluation .* --total-timesteps 400' continues"
    ):
        resume(run, hooks=False)
    resume(run, total_timesteps=200, hooks=False)
    assert ends(run)[-1] == {"status": "finished"}
    assert next(iter(record.step for record in reversed(list(read(run.journal))))) == 200


def test_run_that_reaches_its_total_has_no_reason(tmp_path: Path) -> None:
    options = {**SHORT, "total_timesteps": 40, "eval_every": 40, "target_return": -5.0}
    run = train(TINY, f"{ENVS}:Chain", options, out=tmp_path, hooks=False)
    assert ends(run) == [{"status": "finished"}]


def test_controller_sets_only_scale_and_stop() -> None:
    clock = Clock(100)
    steering: Any = Steering(clock)
    steering.scale = 0.5
    steering.stop = True
    assert (clock.scale, clock.stop, steering.total, steering.progress) == (0.5, True, 100, 0.0)
    steering.stop = False  # another controller, a signal or a limit may have set it
    assert clock.stop
    for name in ("steps", "total", "limit", "updates", "progress"):
        with pytest.raises(AttributeError):
            setattr(steering, name, 1)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="it must be finite and at least 0"):
            steering.scale = wrong
    assert clock.scale == 0.5


def test_controller_by_name_equals_its_option(tmp_path: Path) -> None:
    options = {**SHORT, "eval_every": 20, "log_every": 400}
    by_option = train(TINY, f"{ENVS}:Chain", {**options, "target_return": 0.0}, out=tmp_path, hooks=False)
    by_name = train(
        TINY, f"{ENVS}:Chain", {**options, "controller": ["target-return:target=0"]}, out=tmp_path, hooks=False
    )
    ends = [list(read(each.journal, kinds=("end",)))[-1].data["reason"] for each in (by_option, by_name)]
    assert ends[0] == ends[1]
    assert "(--target-return 0)" in ends[0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("early-stoping", "no controller 'early-stoping' is installed; did you mean 'early-stopping'"),
        ("early-stopping:patiense=3", "has no option 'patiense'; did you mean 'patience'"),
        ("early-stopping:patience=0", "patience"),
        ("target-return", "target-return has no target; write target-return:target=200"),
        (f"{HERE}:Silent", "has no 'reason'"),
        (f"{HERE}:Raises", "cannot be made: ValueError: not today"),
        (f"{HERE}:Stateless", "it has no 'state_dict'"),
    ],
)
def test_wrong_controller_leaves_no_run(spec: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RlplugError) as raised:
        train(TINY, f"{ENVS}:Chain", {**SHORT, "controller": [spec]}, out=tmp_path / "runs", hooks=False)
    assert message in str(raised.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("wrong", ["Fails", "Misuses"])
def test_error_names_the_controller(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(RlplugError, match=f"controller {wrong} failed in evaluated"):
        train(TINY, f"{ENVS}:Chain", {**SHORT, "controller": [f"{HERE}:{wrong}"]}, out=tmp_path, hooks=False)


def test_stop_without_reason_names_the_controller(tmp_path: Path) -> None:
    run = train(TINY, f"{ENVS}:Chain", {**SHORT, "controller": [f"{HERE}:Curt"]}, out=tmp_path, hooks=False)
    (end,) = read(run.journal, kinds=("end",))
    assert re.fullmatch(r"stopped at step \d+: Curt stopped it and gave no reason", end.data["reason"])


class Silent:
    """Has no reason."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def __init__(self, config: Any) -> None: ...


class Raises(Silent):
    def __init__(self, config: Any) -> None:
        raise ValueError("not today")


class Stateless:
    reason = ""


class Fails(Silent):
    reason = ""

    def evaluated(self, evaluation: Any, clock: Any) -> None:
        raise KeyError("oh")


class Curt(Silent):
    reason = ""

    def evaluated(self, evaluation: Any, clock: Any) -> None:
        clock.stop = True


class Misuses(Fails):
    def evaluated(self, evaluation: Any, clock: Any) -> None:
        clock.steps = 0
