"""One process's work on a run: builds it from a plan, trains it, and writes down everything that happens."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rlplug_core.advice import advice
from rlplug_core.checkpoint import Checkpoints
from rlplug_core.clock import Clock
from rlplug_core.environment import environment
from rlplug_core.errors import Interrupted, NonFinite, WorkerFailed
from rlplug_core.evaluate import Evaluation, evaluate
from rlplug_core.events import Events, Progress, Runner
from rlplug_core.journal import Journal
from rlplug_core.plan import Plan
from rlplug_core.plugins import Hooks
from rlplug_core.protocols import Env, Learner, SupportsFinish
from rlplug_core.rundir import RunDirectory
from rlplug_core.runners.build import build
from rlplug_core.seeds import seed_globals
from rlplug_core.settings import torch_settings
from rlplug_core.types import State

if TYPE_CHECKING:
    from rlplug_core.run import Run

Watch = Callable[[Progress], None]


class Trainable(Runner, Protocol):
    """A runner as a session drives it; `inexact` says why a resumed run would not give the same bits, or is empty."""

    inexact: str

    def run(self, poll: Callable[[], None]) -> None: ...
    def load_state_dict(self, state: State) -> None: ...
    def close(self) -> None: ...


class Session:
    """Trains `plan` in `directory`; the sink of all events."""

    def __init__(self, plan: Plan, run: Run, hooks: Hooks, watch: Watch | None) -> None:
        self.plan, self.run, self.hooks, self.on_watch = plan, run, hooks, watch
        self.directory: RunDirectory = run.directory
        self.checkpoints = Checkpoints(self.directory.checkpoints_path, plan.options.keep)
        self.eval_env: Env | None = None
        self.clock = Clock(plan.options.total_steps)
        self.signal = 0
        self.status, self.ended = "failed", ""

    def train(
        self, resumed: tuple[int, Mapping[str, State]] | None = None, limit: int | None = None, rescale: bool = False
    ) -> None:
        """Train to the end (or to `limit`), from the state `resumed` (its env step and components) if given.

        What stopped the run early stops it again at once, unless there is a `limit`: then it has had its say.

        Raises:
            Interrupted: a signal stopped it, after a checkpoint. RlplugError: it failed.
        """
        self.directory.lock()
        self.journal = Journal(self.directory.journal_path, resumed[0] if resumed else None)
        self.hooks.tag = lambda tags: self.record("tag", self.clock.steps, tags)
        try:
            with torch_settings(self.plan.options.threads), self._signals():
                with self._started(resumed, limit, rescale):
                    self._run()
                if self.status == "finished" and self.plan.options.verdict_episodes:
                    self._verdict()
        except BaseException as error:  # whatever ends a run, its journal says so; raised again below
            self.status = "failed"
            self._failed(error)
            raise
        finally:
            self._end(self.status)
        if self.status == "interrupted":
            name = signal.Signals(self.signal).name
            raise Interrupted(
                f"stopped by {name} at step {self.clock.steps}, checkpoint saved; "
                f"`rlplug resume {self.run.path}` goes on",
                self.signal,
            )

    @contextmanager
    def _started(
        self, resumed: tuple[int, Mapping[str, State]] | None, limit: int | None, rescale: bool
    ) -> Iterator[None]:
        """The runner and its events, ready to go; closed whatever happens from here on."""
        self.record("start", resumed[0] if resumed else 0, {"resumed": resumed is not None, **self.directory.config})
        seed_globals(self.plan.seeds().child("globals"))
        self.runner: Trainable = build(self.plan, self.clock)
        try:
            self.events = Events(self.runner, self.plan.options, self)
            if resumed:
                self.runner.load_state_dict(dict(resumed[1]))
                self.clock.limit = limit or self.clock.limit
                if rescale:
                    self.clock.total = self.clock.limit
                self.events.load_state_dict(resumed[1]["events"])
                if limit is not None:
                    self.events.ended = ""
                self.clock.stop = bool(self.events.ended)
            self.hooks.run_start(self.run)
            yield
        finally:
            self.runner.close()

    def _run(self) -> None:
        try:
            self.runner.run(self.events.poll)
            self._finish()
        except NonFinite as error:
            when = f"at step {self.clock.steps:,}, update {self.clock.updates:,}"
            raise NonFinite(f"{error.what} {when}", advice(self.plan, self.checkpoints, error.what)) from error

    def _finish(self) -> None:
        """Write down what was trained; a signal that comes from here on stops nothing any more."""
        if self.signal:
            self.events.checkpoint("step", "interrupted")
            self.status = "interrupted"
            return
        learner = self.runner.snapshot()
        if isinstance(learner, SupportsFinish):
            learner.finish(self.clock)
        self.events.finish()
        self.events.checkpoint("final", "final")
        self.status, self.ended = "finished", self.events.ended if self.clock.steps < self.clock.limit else ""

    def _verdict(self) -> None:
        self.watch(self.events.progress("verdict"))
        seed = self.plan.seeds().child("verdict").integer()
        result = self.run.evaluate(self.plan.options.verdict_episodes, seed)
        best = self.checkpoints.kept("best")[0]
        self.record("verdict", self.clock.steps, {
            "checkpoint": best.path.name, "episodes": result.episodes, "return_mean": result.mean,
            "return_std": result.std, "return_min": result.minimum, "return_max": result.maximum,
        })  # fmt: skip

    def _failed(self, error: BaseException) -> None:
        path = self.directory.path / "error.txt"
        details = [f"{error.details}\n"] if isinstance(error, WorkerFailed) else []
        path.write_text("".join(details + traceback.format_exception(error)), encoding="utf-8")
        self.record("error", self.clock.steps, {"type": type(error).__name__, "message": str(error)})
        self.hooks.run_error(self.run, error)

    def _end(self, status: str) -> None:
        if self.eval_env is not None:
            self.eval_env.close()
        early = {"reason": f"stopped at step {self.clock.steps:,}: {self.ended}"} if self.ended else {}
        self.record("end", self.clock.steps, {"status": status, **early})
        self.journal.sync()
        self.hooks.run_end(self.run, status)
        self.journal.close()
        self.directory.unlock()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop between two batches, a second SIGINT at once. Only the main thread may do this."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: Any) -> None:
            if self.signal and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.signal, self.clock.stop = number, True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # What events ask for.

    def record(self, kind: str, step: int, data: Mapping[str, Any]) -> None:
        written = self.journal.write(kind, step, data)
        if written and kind in ("metrics", "evaluation"):
            self.hooks.run_log(self.run, step, {k: v for k, v in written.data.items() if not isinstance(v, bool)})

    def evaluate(self, learner: Learner[Any]) -> Evaluation:
        if self.eval_env is None:
            self.eval_env = self.plan.make_env(self.plan.options.eval_episodes)
        seed = self.plan.seeds().child("evaluation").integer()
        return evaluate(learner.agent(), self.eval_env, seed, self.clock)

    def checkpoint(self, kind: str, step: int, components: Mapping[str, State], reason: str) -> None:
        about = {
            "reason": reason, "exact": not self.runner.inexact, "inexact": self.runner.inexact,
            "environment": environment(self.plan), "created": time.time(),
        }  # fmt: skip
        saved = self.checkpoints.save(kind, step, components, about)
        self.journal.sync()
        self.record("checkpoint", step, {"name": saved.path.name, "reason": reason})
        self.hooks.run_checkpoint(self.run, saved.path, reason)

    def watch(self, progress: Progress) -> None:
        if self.on_watch is not None:
            self.on_watch(progress)
