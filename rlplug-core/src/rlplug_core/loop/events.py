"""Log, evaluate, checkpoint and stop by the clock, between vector steps."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from rlplug_core.clock import Clock, due
from rlplug_core.config.run_options import RunOptions
from rlplug_core.loop.best import BestEvaluation
from rlplug_core.loop.controllers import ControllerGroup, Limits, controllers_of
from rlplug_core.loop.episode_stats import EpisodeStats, columns
from rlplug_core.loop.evaluate import Evaluation, evaluation_metrics
from rlplug_core.loop.schedules import SCHEDULE, Schedules
from rlplug_core.protocols import AnyLearner, Controller
from rlplug_core.types import Episode, State

#: Seconds between two checks of wall time: progress display, signals, workers.
TICK = 0.2
#: The number of progress displays over which the speed is measured.
WINDOW = 25


@dataclass(slots=True)
class Progress:
    """The progress of a run, for display; `phase` is `training`, `evaluating` or `final_eval`.

    `losses` and `schedules` are the metrics `loss/…` and `schedule/…` of the last log record, `message` is a sentence
    about something that happened now, and `window` is the number of episodes that `return_mean` averages.
    """

    steps: int
    total: int
    steps_per_second: float
    episodes: int
    return_mean: float | None
    evaluation: float | None
    best: float | None
    phase: str
    losses: Mapping[str, float] = field(default_factory=dict)
    schedules: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    window: int = 100

    @property
    def eta_s(self) -> float:
        """Seconds to go at the current speed."""
        if self.steps_per_second <= 0:
            return math.inf
        return max(0, self.total - self.steps) / self.steps_per_second


class Runner(Protocol):
    """A runner, as a session and its events use it."""

    clock: Clock
    #: Why a resumed run would not give the same bits; "" if it would.
    inexact: str
    #: Whether `episodes` waits for a device; then it is called for records only, and not for the display.
    on_device: bool

    def run(self, poll: Callable[[], None]) -> None:
        """Train until the clock is done; call `poll` between vector steps, or between messages of other processes."""
        ...

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        """Return the episodes since the last call as (steps, worker, episode)."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return the means of the updates' metrics since the last call."""
        ...

    def configure(self, settings: Mapping[str, object]) -> None:
        """Set attributes of the environments, in each one from its next episode on."""
        ...

    def snapshot(self) -> AnyLearner:
        """Return a learner with weights that do not change while they are evaluated and saved."""
        ...

    def state_dict(self) -> State:
        """Return the run's components by name; `learner` is one of them."""
        ...

    def load_state_dict(self, state: State) -> None: ...
    def close(self) -> None: ...


class Sink(Protocol):
    """Receives the events of a run: writes records and checkpoints, evaluates, shows the progress."""

    def record(self, kind: str, step: int, data: Mapping[str, object]) -> None: ...
    def evaluate(self, learner: AnyLearner) -> Evaluation: ...
    def checkpoint(
        self,
        kind: str,
        step: int,
        components: Mapping[str, State],
        reason: str,
    ) -> None: ...
    def watch(self, progress: Progress) -> None: ...


class Events:
    """Logs, evaluates and saves when it is time; `poll` is called once per vector step, and usually returns at once.

    Records are on a grid of env steps that is the same for all seeds of a configuration.
    """

    def __init__(
        self,
        runner: Runner,
        options: RunOptions,
        sink: Sink,
        controllers: Iterable[Controller] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.clock = runner.clock
        self.sink = sink
        self.now = now
        self.group = ControllerGroup(
            [*controllers_of(options), *controllers], self.clock, self._configure
        )
        self.limits = Limits(options.max_episodes, options.max_seconds)
        self._set_intervals(options)
        #: The first reason why a controller or a limit stopped the run.
        self.ended = ""
        #: The env step of the last due tasks.
        self.steps = self.clock.steps
        #: The env steps of the last log record and the last evaluation; -1 before the first.
        self.logged = self.evaluated = -1
        self.best = BestEvaluation()
        #: The mean return of the last evaluation.
        self.last_mean: float | None = None
        #: Finished episodes, all and those at the last log record.
        self.episodes = self.logged_episodes = 0
        self.recent = EpisodeStats(options.stats_window_size)
        #: Episodes that no log record has yet.
        self.pending: list[tuple[int, int, Episode]] = []
        self.losses: dict[str, float] = {}
        #: The learner's schedules, from the first log record on, and their last values.
        self.schedules: Schedules | None = None
        self.scheduled: dict[str, float] = {}
        #: The time at the start of the run, without the time between sessions, and of this process.
        self.run_start = self.process_start = self.next_tick = now()
        #: Seconds that this process has not spent on training.
        self.pauses = {"evaluation": 0.0, "checkpoint": 0.0}
        #: Time and env step of the last progress displays.
        self.marks: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        #: Time and env step of the last record; before the first one, those of the first poll with new steps.
        self.lap: tuple[float, int] | None = None
        #: The next env step with a due task. The first poll saves, so that a run can be resumed from its first step;
        #: time is measured from there.
        self.next = self.steps
        self.saved = False

    def _set_intervals(self, options: RunOptions) -> None:
        """Set the env steps or episodes between two records, evaluations and checkpoints."""
        self.log_every_episodes = options.log_every_episodes
        self.follows_episodes = bool(
            options.max_episodes or self.log_every_episodes or self.group.listens
        )
        total = options.total_timesteps
        self.log_every = 0 if self.log_every_episodes else options.log_every or max(1, total // 100)
        self.eval_every = options.eval_every or max(1, total // 20)
        self.checkpoint_every = options.checkpoint_every or max(1, total // 10)

    def poll(self) -> None:
        """Log, evaluate, save and stop, each if it is time at the clock's steps."""
        # Stop at the step that ends the last episode, so that a run can be repeated.
        if self.follows_episodes:
            self._check_limits()
            if due(self.logged_episodes, self.episodes, self.log_every_episodes):
                self.log()
        steps = self.clock.steps
        if steps < self.next and self.now() < self.next_tick:
            return
        # The time to start workers and environments does not count.
        if self.lap is None and steps > self.steps:
            self.lap = (self.now(), steps)
        if steps >= self.next:
            self._do_due_tasks(steps)
        if self.now() >= self.next_tick:
            self.next_tick = self.now() + TICK
            self._check_limits()
            self.sink.watch(self.progress("training"))

    def _do_due_tasks(self, steps: int) -> None:
        """Log, evaluate and save, each if it is due at this env step."""
        before = self.steps
        self.steps = steps
        intervals = (self.log_every, self.eval_every, self.checkpoint_every)
        self.next = min(steps - steps % interval + interval for interval in intervals if interval)
        if due(before, steps, self.log_every):
            self.log()
        if due(before, steps, self.eval_every):
            with self._pause_timer("evaluation"):
                self.evaluate()
        save = due(before, steps, self.checkpoint_every) or not self.saved
        if save and not self.clock.done:
            with self._pause_timer("checkpoint"):
                self.checkpoint("step", "periodic" if self.saved else "begin")

    def finish(self) -> None:
        """Write the last log record and evaluate at the end of a run, unless both were just made."""
        if self.logged != self.clock.steps:
            self.log(at_end=True)
        if self.evaluated != self.clock.steps:
            self.evaluate(at_end=True)

    def log(self, at_end: bool = False) -> None:
        """Write episodes and metrics since the last record."""
        self._collect()
        self.logged = self.clock.steps
        self.logged_episodes = self.episodes
        step = self._record_step(self.log_every, at_end)
        if self.pending:
            self.sink.record("episodes", step, columns(self.pending))
            self.pending = []
        metrics = {"rollout/episodes": float(self.episodes), **self.runner.metrics()}
        self.losses = {name: value for name, value in metrics.items() if name.startswith("loss/")}
        metrics |= self._schedule_values()
        metrics |= self.recent.metrics()
        metrics |= self._lap_speed()
        metrics["perf/wall_s"] = self.now() - self.run_start
        metrics["perf/updates"] = float(self.clock.updates)
        elapsed = self.now() - self.process_start or 1.0
        metrics |= {
            f"perf/{name}_share": seconds / elapsed for name, seconds in self.pauses.items()
        }
        self.sink.record("metrics", step, metrics)

    def evaluate(self, at_end: bool = False) -> None:
        """Evaluate the current weights; keep them if they are the best so far."""
        self.sink.watch(self.progress("evaluating"))
        self.evaluated = steps = self.clock.steps
        learner = self.runner.snapshot()
        result = self.sink.evaluate(learner)
        self.last_mean = result.mean
        is_best = self.best.improves(learner, result)
        metrics = {**evaluation_metrics(result), "best": is_best}
        self.sink.record("evaluation", self._record_step(self.eval_every, at_end), metrics)
        if is_best:
            self.sink.checkpoint("best", steps, {"learner": learner.state_dict()}, "best")
        self._notify_controllers(lambda: self.group.evaluated(result))

    def _configure(self, settings: Mapping[str, object]) -> None:
        """Apply the settings of controllers to the environments, and record them."""
        self.runner.configure(settings)
        self.sink.record("settings", self.clock.steps, settings)

    def _record_step(self, interval: int, at_end: bool) -> int:
        """Return a record's step: the last point of its grid, or the end, which workers overshoot by some steps.

        Records that follow episodes have no grid (`interval` is 0).
        """
        steps = self.clock.steps
        return min(steps, self.clock.limit) if at_end or not interval else steps - steps % interval

    def checkpoint(self, kind: str, reason: str) -> None:
        """Save the whole run."""
        self.saved = True
        self._collect()
        components = {**self.runner.state_dict(), "events": self.state_dict()}
        self.sink.checkpoint(kind, self.clock.steps, components, reason)

    def progress(self, phase: str) -> Progress:
        """Return the progress of the run."""
        steps = self.clock.steps
        if phase == "training" and steps:
            self.marks.append((self.now(), steps))
        return Progress(
            steps=steps,
            total=self.clock.limit,
            steps_per_second=self.speed(),
            episodes=self.episodes,
            return_mean=self.recent.return_mean,
            evaluation=self.last_mean,
            best=self.best.mean,
            phase=phase,
            losses=self.losses,
            schedules=self.scheduled,
            window=self.recent.window,
        )

    def speed(self) -> float:
        """Env steps per second over the last few seconds, evaluations included; 0 before two measurements."""
        if len(self.marks) < 2:
            return 0.0
        (began, first), (ended, last) = self.marks[0], self.marks[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def _schedule_values(self) -> dict[str, float]:
        """Return the current values of schedules, and the factor of learning rates if there are controllers."""
        if self.schedules is None:
            self.schedules = Schedules(self.runner.snapshot())
        self.scheduled = self.schedules.metrics(self.clock)
        if self.group.controllers:
            self.scheduled[f"{SCHEDULE}scale"] = self.clock.scale
        return self.scheduled

    def _lap_speed(self) -> dict[str, float]:
        """Env steps per second since the last record, evaluations included; empty if no time was measured."""
        now = self.now()
        steps = self.clock.steps
        lap = self.lap
        self.lap = (now, steps)
        if lap is None or now <= lap[0] or steps <= lap[1]:
            return {}
        return {"perf/env_steps_per_s": (steps - lap[1]) / (now - lap[0])}

    def state_dict(self) -> State:
        return {
            "steps": self.steps,
            "logged": self.logged,
            "evaluated": self.evaluated,
            **self.best.state_dict(),
            "last": self.last_mean,
            "episodes": self.episodes,
            "logged_episodes": self.logged_episodes,
            "recent": self.recent.state_dict(),
            "wall": self.now() - self.run_start,
            "pending": [
                [steps, worker, *episode.plain()] for steps, worker, episode in self.pending
            ],
            "controllers": self.group.state_dict(),
            "limits": self.limits.state_dict(),
            "ended": self.ended,
        }

    def load_state_dict(self, state: State) -> None:
        self.steps = state["steps"]
        self.logged = state["logged"]
        self.evaluated = state["evaluated"]
        self.best.load_state_dict(state)
        self.last_mean = state["last"]
        self.episodes = state["episodes"]
        self.logged_episodes = state.get("logged_episodes", 0)
        self.recent.load_state_dict(state["recent"])
        self.run_start = self.now() - state["wall"]
        self.pending = [
            (steps, worker, Episode(*plain)) for steps, worker, *plain in state["pending"]
        ]
        self.group.load_state_dict(state["controllers"])
        self.limits.load_state_dict(state["limits"])
        self.ended = state["ended"]
        self.saved = True
        self.next = self.steps

    @contextmanager
    def _pause_timer(self, name: str) -> Iterator[None]:
        """Count time that is not spent on training."""
        began = self.now()
        yield
        self.pauses[name] += self.now() - began

    def _check_limits(self) -> None:
        if self.follows_episodes or not self.runner.on_device:
            self._collect()
        before = self.limits.reason
        self.limits.check(self.episodes, self.now() - self.run_start, self.clock)
        if self.limits.reason != before:
            self.ended = self.ended or self.limits.reason

    def _notify_controllers(self, call: Callable[[], str]) -> None:
        """Pass an event to the controllers; record a new factor of learning rates, and keep a reason to stop."""
        before = self.clock.scale
        reason = call()
        self.ended = self.ended or reason
        scale = self.clock.scale
        if scale == before:
            return
        steps = self.clock.steps
        self.sink.record("scale", steps, {"before": before, "scale": scale})
        message = (
            f"step {steps:,}: learning rates are multiplied by {scale:g} from here on, "
            f"by {before:g} before"
        )
        self.sink.watch(replace(self.progress("training"), message=message))

    def _collect(self) -> None:
        episodes = [
            (steps, worker, self.recent.add(ended))
            for steps, worker, ended in self.runner.episodes()
        ]
        self.episodes += len(episodes)
        self.pending += episodes
        if episodes and self.group.listens:
            self._notify_controllers(
                lambda: self.group.ended([episode for _, _, episode in episodes])
            )
