"""Records, evaluations and checkpoints are made once, at their steps, and do not change training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.config.run_options import RunOptions
from rlplug_core.loop.controllers import Plateau, PlateauConfig, TargetReturn, TargetReturnConfig
from rlplug_core.loop.episode_stats import MOST_NAMES, EpisodeStats, columns
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.events import TICK, Events, Progress
from rlplug_core.loop.sync import Meter
from rlplug_core.types import Episode, Result
from tests.core.fakes import TINY, assert_same, make_runner, save_and_load
from tests.tables import for_each


class Recorder:
    """Keeps records and checkpoints in order; evaluations have the given returns."""

    def __init__(self, returns: list[float] | None = None) -> None:
        self.records: list[tuple[str, int, dict[str, Any]]] = []
        self.checkpoints: list[tuple[str, int, Mapping[str, Any]]] = []
        self.progress: list[Progress] = []
        self.returns = returns or [1.0]
        self.during: Any = lambda: None

    def record(self, kind: str, step: int, data: Mapping[str, Any]) -> None:
        self.records.append((kind, step, dict(data)))

    def evaluate(self, learner: Any) -> Evaluation:
        self.during()
        value = self.returns.pop(0) if len(self.returns) > 1 else self.returns[0]
        return Evaluation((value, value + 2), (3, 5))

    def checkpoint(self, kind: str, step: int, components: Mapping[str, Any], reason: str) -> None:
        self.checkpoints.append((kind, step, save_and_load(dict(components))))

    def watch(self, progress: Progress) -> None:
        self.progress.append(progress)

    def steps(self, kind: str) -> list[int]:
        return [step for name, step, _ in self.records if name == kind]


class Watch:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def run(sink: Recorder, controllers: Any = (), until: int = 0, state: Any = None, **options: Any) -> Events:
    """Train Tiny on Chain with events, as a session does."""
    settings = {"seed": 3, "num_envs": 2, "total_timesteps": 200, "runner": "sync", **options}
    runner = make_runner(TINY, **settings)
    events = Events(runner, RunOptions(**settings), sink, controllers, Watch())
    if state is not None:
        runner.load_state_dict(state)
        events.load_state_dict(state["events"])
    runner.clock.limit = until or runner.clock.limit
    runner.run(events.poll)
    if not until:
        events.finish()
    return events


def test_records_are_at_multiples_of_their_intervals() -> None:
    sink = Recorder()
    run(sink, log_every=10, eval_every=50, checkpoint_every=80)
    assert sink.steps("metrics") == list(range(10, 201, 10))
    assert sink.steps("evaluation") == [50, 100, 150, 200]
    assert [(kind, step) for kind, step, _ in sink.checkpoints if kind == "step"] == [
        ("step", 0),
        ("step", 80),
        ("step", 160),
    ]


@for_each("num_envs", [1, 2, 3, 7])
@for_each("seed", [0, 1])
def test_log_steps_do_not_depend_on_seed_and_num_envs(num_envs: int, seed: int) -> None:
    sink = Recorder()
    run(sink, num_envs=num_envs, seed=seed, log_every=20, eval_every=100)
    assert sink.steps("metrics") == list(range(20, 201, 20))
    assert len(sink.steps("evaluation")) == 2


def test_default_intervals_follow_from_the_total() -> None:
    sink = Recorder()
    run(sink, total_timesteps=400)
    assert sink.steps("metrics") == list(range(4, 401, 4))
    assert sink.steps("evaluation") == list(range(20, 401, 20))
    assert [step for kind, step, _ in sink.checkpoints if kind == "step"] == list(range(0, 400, 40))


def test_run_is_logged_and_evaluated_at_its_end() -> None:
    sink = Recorder()
    run(sink, total_timesteps=50, num_envs=1, log_every=20, eval_every=30)
    assert sink.steps("metrics") == [20, 40, 50]
    assert sink.steps("evaluation") == [30, 50]


def test_end_of_run_repeats_no_record() -> None:
    """The last vector step ends at 51; its records are at 50."""
    sink = Recorder()
    events = run(sink, total_timesteps=50, num_envs=3, log_every=10, eval_every=25)
    assert events.clock.steps == 51
    assert sink.steps("metrics") == [10, 20, 30, 40, 50]
    assert sink.steps("evaluation") == [25, 50]


def test_evaluates_at_the_end_without_a_last_poll() -> None:
    """As with worker processes: the parent learns of the end before it polls the clock."""
    sink = Recorder()
    options = {"total_timesteps": 40, "num_envs": 2, "runner": "sync"}
    runner = make_runner(TINY, **options)
    events = Events(runner, RunOptions(**options, log_every=20, eval_every=20), sink, (), Watch())
    runner.run(lambda: None)
    events.finish()
    assert sink.steps("metrics") == [40]
    assert sink.steps("evaluation") == [40]


def test_logs_time_share_of_evaluations_and_checkpoints() -> None:
    """Here an evaluation takes three seconds, and a checkpoint of kind "step" takes one."""
    watch = Watch()
    options = {"total_timesteps": 200, "num_envs": 1, "runner": "sync"}

    class Slow(Recorder):
        def evaluate(self, learner: Any) -> Evaluation:
            watch.time += 3.0
            return super().evaluate(learner)

        def checkpoint(self, kind: str, step: int, components: Mapping[str, Any], reason: str) -> None:
            watch.time += kind == "step"
            super().checkpoint(kind, step, components, reason)

    def poll() -> None:
        watch.time += 0.1
        events.poll()

    sink = Slow()
    runner = make_runner(TINY, **options)
    events = Events(runner, RunOptions(**options, log_every=50, eval_every=50, checkpoint_every=50), sink, (), watch)
    runner.run(poll)
    first, *_, last = [data for kind, _, data in sink.records if kind == "metrics"]
    assert first["perf/evaluation_share"] == 0.0
    assert last["perf/evaluation_share"] == pytest.approx(9.0 / last["perf/wall_s"])  # at 50, 100 and 150 steps
    assert last["perf/checkpoint_share"] == pytest.approx(4.0 / last["perf/wall_s"])  # and at the start
    assert last["perf/wall_s"] == pytest.approx(33.0, abs=0.2)


def test_saves_only_better_evaluations() -> None:
    sink = Recorder([5.0, 4.0, 5.0, 7.0])
    run(sink, eval_every=50)
    assert [step for kind, step, _ in sink.checkpoints if kind == "best"] == [50, 200]
    evaluations = [data for kind, _, data in sink.records if kind == "evaluation"]
    assert [data["best"] for data in evaluations] == [True, False, False, True]
    assert evaluations[0] == {
        "eval/return_mean": 6.0, "eval/return_std": 1.0, "eval/return_min": 5.0, "eval/return_max": 7.0,
        "eval/length_mean": 4.0, "best": True,
    }  # fmt: skip


@pytest.mark.parametrize(("opponent", "steps"), [(-1.0, [50, 100, 150, 200]), (1.0, [50])])
def test_zero_sum_game_saves_the_newest_weights(opponent: float, steps: list[int]) -> None:
    """The mean over both players is then always 0; in other games equal means keep the first checkpoint."""
    sink = Recorder()
    sink.evaluate = lambda learner: Evaluation((1.0, opponent, -opponent, -1.0), (3,) * 4, agents=("a", "b", "a", "b"))  # type: ignore[method-assign]
    run(sink, eval_every=50)
    assert [step for kind, step, _ in sink.checkpoints if kind == "best"] == steps


def test_best_checkpoint_holds_the_evaluated_weights() -> None:
    """Workers continue to change the shared parameters while the parent evaluates."""
    sink = Recorder()
    options = {"seed": 3, "num_envs": 2, "total_timesteps": 100, "runner": "async", "inline": True, "workers": 2}
    runner = make_runner(TINY, **options)
    evaluated: list[Any] = []

    def during() -> None:
        evaluated.append({name: value.clone() for name, value in runner.master.policy.state_dict().items()})
        for optimizer in runner.master.optimizers:
            optimizer.target.add_(1.0)

    sink.during = during
    events = Events(runner, RunOptions(**options, eval_every=60), sink, (), Watch())
    runner.clock.limit = 60
    runner.run(events.poll)
    ((_, _, components),) = [saved for saved in sink.checkpoints if saved[0] == "best"]
    policy = {name.removeprefix("policy."): v for name, v in components["learner"].items() if name[:7] == "policy."}
    assert_same(policy, evaluated[0])


def test_controller_gets_each_evaluation_and_stops_the_run() -> None:
    sink = Recorder([1.0, 2.0, 30.0])
    events = run(sink, [TargetReturn(TargetReturnConfig(20.0))], eval_every=20)
    assert events.clock.steps == 60
    assert sink.steps("evaluation") == [20, 40, 60]
    assert events.state_dict()["controllers"]["all"] == [{"reason": "an evaluation reached 31.0 (--target-return 20)"}]


def test_records_episodes_once_with_their_last_step() -> None:
    sink = Recorder()
    events = run(sink, log_every=30)
    episodes = [data for kind, _, data in sink.records if kind == "episodes"]
    last = [data for kind, _, data in sink.records if kind == "metrics"][-1]
    steps = [step for data in episodes for step in data["steps"]]
    assert len(steps) == events.episodes == last["rollout/episodes"] > 10
    assert steps == sorted(steps)
    returns = [value for data in episodes for value in data["returns"]]
    assert set(returns) == {0.0, 1.0}
    assert last["rollout/return_mean"] == pytest.approx(sum(returns[-100:]) / len(returns[-100:]))


def test_logs_every_n_episodes() -> None:
    """A record is written at the end of every third episode, and one at the end of the run."""
    sink = Recorder()
    events = run(sink, log_every_episodes=3, eval_every=100)
    counts = [data["rollout/episodes"] for kind, _, data in sink.records if kind == "metrics"]
    ended = [step for kind, _, data in sink.records if kind == "episodes" for step in data["steps"]]
    crossings = [ended[number - 1] for number in range(3, events.episodes + 1, 3)]
    assert len(crossings) > 5
    assert sink.steps("metrics") == sorted({*crossings, 200})
    assert counts[-1] == events.episodes
    assert sink.steps("evaluation") == [100, 200]


@pytest.mark.parametrize("at", [34, 60])
def test_resumed_run_continues_to_count_episodes(at: int) -> None:
    options = {"log_every_episodes": 4, "eval_every": 100, "checkpoint_every": 50}
    uninterrupted = Recorder()
    first = Recorder()
    second = Recorder()
    run(uninterrupted, **options)
    events = run(first, until=at, **options)
    state = save_and_load({**events.runner.state_dict(), "events": events.state_dict()})
    state["clock"]["limit"] = 200
    run(second, state=state, **options)
    assert first.steps("metrics") + second.steps("metrics") == uninterrupted.steps("metrics")


def test_statistics_use_a_window_of_episodes() -> None:
    """The mean, population standard deviation, smallest and largest return are logged."""
    sink = Recorder()
    events = run(sink, log_every=200, stats_window_size=3)
    returns = [value for kind, _, data in sink.records if kind == "episodes" for value in data["returns"]][-3:]
    last = [data for kind, _, data in sink.records if kind == "metrics"][-1]
    assert events.progress("training").window == 3
    found = [last[f"rollout/return_{name}"] for name in ("mean", "std", "min", "max")]
    assert found == pytest.approx([np.mean(returns), np.std(returns), min(returns), max(returns)])
    recent = EpisodeStats(4)
    for value in (1e200, -1e200, 3.0, 4.0, 5.0):
        recent.add(Episode(0, value, 1))
    assert math.isfinite(recent.metrics()["rollout/return_std"])  # no overflow
    for value in (1.0, 1.0, 5.0, 5.0):
        recent.add(Episode(0, value, 1))
    assert recent.metrics()["rollout/return_std"] == 2.0


def test_logs_schedules() -> None:
    """Tiny's learning rate decreases from 0.01 to 0."""
    sink = Recorder()
    run(sink, log_every=50, total_timesteps=200)
    found = [data["schedule/learning_rate"] for kind, _, data in sink.records if kind == "metrics"]
    assert found == pytest.approx([0.0075, 0.005, 0.0025, 0.0], abs=3e-4)
    assert not any("schedule/scale" in data for _, _, data in sink.records)


def test_records_and_reports_new_scale_of_learning_rates() -> None:
    """The second evaluation is not better, so a plateau halves them at step 80."""
    sink = Recorder([5.0, 1.0, 9.0, 10.0, 11.0])
    run(sink, [Plateau(PlateauConfig(1, 0.5))], eval_every=40, log_every=40, total_timesteps=200)
    assert [(step, data) for kind, step, data in sink.records if kind == "scale"] == [
        (80, {"before": 1.0, "scale": 0.5})
    ]
    assert [progress.message for progress in sink.progress if progress.message] == [
        "step 80: learning rates are multiplied by 0.5 from here on, by 1 before"
    ]
    metrics = [data for kind, _, data in sink.records if kind == "metrics"]
    assert [data["schedule/scale"] for data in metrics] == [1, 1, 0.5, 0.5, 0.5]
    rates = [data["schedule/learning_rate"] for data in metrics]
    assert rates == pytest.approx([0.008, 0.006, 0.002, 0.001, 0.0], abs=2e-4)


@pytest.mark.parametrize("at", [34, 40, 46, 60])
def test_resumed_run_repeats_no_record(at: int) -> None:
    """Interrupted at any step, both parts have the records of an uninterrupted run."""
    options = {"log_every": 20, "eval_every": 40, "checkpoint_every": 50}
    uninterrupted = Recorder([3.0, 1.0, 4.0, 1.0, 5.0])
    first = Recorder([3.0, 1.0, 4.0, 1.0, 5.0])
    second = Recorder()
    run(uninterrupted, **options)
    events = run(first, until=at, **options)
    state = save_and_load({**events.runner.state_dict(), "events": events.state_dict()})
    state["clock"]["limit"] = 200
    second.returns = first.returns
    run(second, state=state, **options)
    records = first.records + second.records
    assert [without_time(record) for record in records] == [without_time(record) for record in uninterrupted.records]
    checkpoints = [(kind, step) for kind, step, _ in first.checkpoints + second.checkpoints]
    assert checkpoints == [(kind, step) for kind, step, _ in uninterrupted.checkpoints]


def without_time(record: tuple[str, int, dict[str, Any]]) -> Any:
    kind, step, data = record
    return kind, step, {name: value for name, value in data.items() if not name.startswith("perf/")}


def test_reports_progress_at_intervals() -> None:
    sink = Recorder()
    options = {"seed": 3, "num_envs": 2, "total_timesteps": 100, "runner": "sync"}
    runner = make_runner(TINY, **options)
    watch = Watch()
    events = Events(runner, RunOptions(**options), sink, (), watch)
    counts = []

    def poll() -> None:
        watch.time += TICK / 5
        events.poll()
        counts.append(len([progress for progress in sink.progress if progress.phase == "training"]))

    runner.run(poll)
    assert 8 <= counts[-1] <= 12  # about fifty polls, a fifth of a tick apart
    last = sink.progress[-1]
    assert (last.total, last.episodes) == (100, events.episodes)
    assert last.steps_per_second == pytest.approx(2 / (TICK / 5), rel=0.1)
    assert last.eta_s == pytest.approx((100 - last.steps) / last.steps_per_second)


def test_speed_is_measured_since_the_last_record() -> None:
    sink = Recorder()
    options = {"seed": 3, "num_envs": 2, "total_timesteps": 40, "log_every": 10, "eval_every": 40}
    runner = make_runner(TINY, **options, runner="sync")
    watch = Watch()
    events = Events(runner, RunOptions(**options, runner="sync"), sink, (), watch)
    watch.time += 50.0  # the start of a run does not count

    def poll() -> None:
        events.poll()
        watch.time += 0.01 if runner.clock.steps < 20 else 0.04

    runner.run(poll)
    speeds = [data["perf/env_steps_per_s"] for kind, _, data in sink.records if kind == "metrics"]
    assert speeds == pytest.approx([200, 200, 50, 50])


def test_records_no_speed_without_elapsed_time() -> None:
    sink = Recorder()
    run(sink, log_every=2, total_timesteps=6)  # the wall clock does not move
    assert not [data for _, _, data in sink.records if "perf/env_steps_per_s" in data]


def test_meter_averages_recent_values() -> None:
    meter = Meter(recent=3)
    for number in range(5):
        metrics: dict[str, Any] = {"loss": torch.tensor(float(number))}
        if number % 2:
            metrics["kl"] = number
        meter.add(Result(metrics))
    state = save_and_load(meter.state_dict())  # type: ignore[arg-type]
    assert state == {"loss": [[0, 1, 2], [2.0, 3.0, 4.0]], "kl": [[1], [3.0]]}
    resumed = Meter(recent=3)
    resumed.load_state_dict(state)
    for each in (meter, resumed):  # both drop the same values first
        each.add(Result({"loss": 5.0}))
        each.add(Result({"loss": 9.0}))
    assert meter.flush() == resumed.flush() == {"loss": 6.0}
    assert meter.flush() == {}


def test_meter_takes_tensors_and_numbers() -> None:
    meter = Meter()
    for value in (torch.tensor(1.0), 2.0, 3, torch.tensor(4.0, dtype=torch.float64), torch.tensor([[5.0]]).sum()):
        meter.add(Result({"loss": value}))
    assert meter.flush() == {"loss": 3.0}


def test_limits_names_in_info_with_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """An environment with a new name in every step would fill memory, journal and MLflow."""
    stats = EpisodeStats()
    episodes = [stats.add(Episode(0, 1.0, 1, info={"kept": float(n), f"n{n}": 0.0})) for n in range(300)]
    assert len(stats.names) == MOST_NAMES
    assert len(columns([(n, 0, episode) for n, episode in enumerate(episodes)])) == 4 + MOST_NAMES
    assert stats.metrics()["info/kept"] == 249.5
    assert capsys.readouterr().err.count("has more than 100 names of numbers; 'n99' and later ones") == 1
    resumed = EpisodeStats()
    resumed.load_state_dict(stats.state_dict())
    assert dict(resumed.add(Episode(0, 1.0, 1, info={"n0": 1.0, "n299": 1.0})).info) == {"n0": 1.0}
