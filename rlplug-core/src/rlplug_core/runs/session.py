"""The work of one process on a run: build it from a plan, train it, and record all events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from rlplug_core.algorithm import Algorithm
from rlplug_core.clock import Clock
from rlplug_core.config.files import keep_directory, replace
from rlplug_core.config.import_string import message_of
from rlplug_core.errors import BadCheckpoint, NonFinite, NotWritten, Stopped, clean, warn
from rlplug_core.loop.actor import missing_env_state
from rlplug_core.loop.build import build
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.events import Events, Progress, Runner
from rlplug_core.loop.garbage import freeze_objects
from rlplug_core.loop.learner_checks import check_optimizers
from rlplug_core.loop.memory_check import USUAL_CHECKPOINTS
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.safe_streams import safe_streams
from rlplug_core.loop.signals import handle_signals, no_exit
from rlplug_core.loop.sync import Sync
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.plugins import Hooks
from rlplug_core.plugins.hook_specs import RunView
from rlplug_core.plugins.spec import build_controller
from rlplug_core.protocols import AnyLearner, SupportsFinish
from rlplug_core.runs.checkpoint import Checkpoints, Point, explain_load_errors
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import final_evaluation
from rlplug_core.runs.evaluator import Evaluator
from rlplug_core.runs.files import put_aside, shell_word
from rlplug_core.runs.journal import Journal, read
from rlplug_core.runs.messages import add_resume_command, advice, missing_run_error, with_resume
from rlplug_core.runs.pausing import Pause, StopSignal, failure_text, restarts_envs, wrapper_state
from rlplug_core.runs.recorder import Recorder
from rlplug_core.runs.reproducibility import environment
from rlplug_core.runs.warm_start import load_buffer
from rlplug_core.seeds import seed_globals
from rlplug_core.types import State

Watch = Callable[[Progress], None]
#: The traceback of a run that failed.
FAILURE = "error.txt"


class Session:
    """Trains `plan` and records its events in `directory`; with `until`, it pauses at this env step."""

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        run: RunView,
        hooks: Hooks,
        watch: Watch | None,
        until: int | None = None,
    ) -> None:
        self.plan = plan
        self.directory = directory
        self.run = run
        self.hooks = hooks
        self.on_watch = watch
        self.pause = Pause(until)
        keep = plan.options.keep_checkpoints
        self.checkpoints = Checkpoints(
            directory.checkpoints_path, USUAL_CHECKPOINTS if keep is None else keep
        )
        self.recorder = Recorder(plan, directory.path, plan.options.record_every)
        self.evaluator = Evaluator(plan)
        self.clock = Clock(plan.options.total_timesteps)
        self.stop = StopSignal(self.clock)
        self.status = "failed"
        #: Why the run ended early; "" if it did not.
        self.ended = ""
        self.state_missing = False
        self.working_directory = os.getcwd()

    def train(
        self,
        point: Point | None = None,
        limit: int | None = None,
        rescale: bool = False,
        buffer: Mapping[str, object] | None = None,
    ) -> None:
        """Train to the end.

        Args:
            point: the checkpoint to continue from; default: start a new run. If a controller had stopped the run early,
                it trains no further without a `limit`.
            limit: the env step to train to; default: the run's total.
            rescale: whether to stretch schedules to `limit`.
            buffer: the state of another run's buffer, for a new run.

        Raises:
            Interrupted: a signal stopped the run, or came after its end.
            RlplugError: it failed. UsageError: `until` is not after `point`.
        """
        self.pause.check(point, self.run.path.name)
        with self._open_journal(point.after if point else 0):
            with self._start_run(point, limit, rescale, buffer), freeze_objects():
                self._run()
            has_checkpoint = self.status == "finished" or not restarts_envs(self.runner)
            if self.status == "finished" and self.plan.options.final_eval_episodes != 0:
                self.watch(self.events.progress("final_eval"))
                self._final_evaluation(self.clock.steps)
        self.stop.check(self.run.path, self.status, has_checkpoint)

    def conclude(self, steps: int, ended: str) -> None:
        """Run the final evaluation of a run that was killed after its final checkpoint.

        Args:
            steps: the env step of that checkpoint.
            ended: why training had ended early; "" if it had not.
        """
        with self._open_journal(None):
            self._record_start(steps, {})
            self.hooks.run_start(self.run)
            self.clock.steps = steps
            self.status = "finished"
            self.ended = ended
            evaluations = read(self.directory.journal_path, kinds=("final_eval",))
            # The process may have been killed after this evaluation and before the end record.
            if not any(record.step == steps for record in evaluations):
                self._final_evaluation(steps)
        self.stop.check(self.run.path, self.status)

    def call_hooks_again(self) -> None:
        """Call the hooks of a finished run: its process was killed before they returned, or one of them failed."""
        self.status = "finished"
        self.directory.hooks_pending = True
        with safe_streams():
            self.hooks.run_start(self.run)
            self._call_end_hooks()

    def _call_end_hooks(self) -> None:
        self.hooks.run_end(self.run, self.status)
        self.directory.hooks_pending = self.hooks.incomplete

    @contextmanager
    def _open_journal(self, after: int | None) -> Iterator[None]:
        """Open the journal for the block, supersede records after number `after`, and always write an end record."""
        self.journal = Journal(self.directory.journal_path, after)
        self.directory.hooks_pending = True
        put_aside(self.directory.path / FAILURE)
        self.hooks.tag = lambda tags: self.record("tag", self.clock.steps, tags)
        self.hooks.write = lambda kind, data: self.journal.write(kind, self.clock.steps, data)
        with ExitStack() as stack:
            stack.enter_context(safe_streams())
            stack.callback(self.journal.close)
            stack.callback(self._call_end_hooks)
            stack.callback(self.evaluator.close)
            try:
                threads = self.plan.options.threads
                with torch_settings(threads), handle_signals(self.stop.receive), no_exit():
                    yield
                self._record_end()
            except Stopped as error:
                raise self._record_stop(error) from error
            # The journal records every way to end; the exception is raised again below.
            except BaseException as error:
                self._exit_if_forked()
                self.status = "failed"
                self._record_failure(error)
                if isinstance(error, NotWritten):
                    raise with_resume(error, self.run.path) from error
                raise

    def _record_stop(self, error: Stopped) -> Stopped:
        """Record that a second signal stopped the run, and return the error with the command that continues it."""
        self._exit_if_forked()
        self.status = "interrupted"
        with suppress(NotWritten):
            self._record_end()
        return add_resume_command(error, self.run.path)

    def _record_start(self, steps: int, goal: Mapping[str, object]) -> None:
        # A run without a checkpoint may have records, if it was killed.
        resumed = self.journal.seq > 0
        data = {"resumed": resumed, "after": self.journal.after, **goal, **self.directory.config}
        self.record("start", steps, data)

    @contextmanager
    def _start_run(
        self,
        point: Point | None,
        limit: int | None,
        rescale: bool,
        buffer: Mapping[str, object] | None,
    ) -> Iterator[None]:
        """Build the runner and its events, load the checkpoint if any, and close the runner after the block."""
        goal = {"limit": limit, "rescale": rescale} if limit else {}
        self._record_start(point.step if point else 0, goal)
        seed_globals(self.plan.seeds().child("globals"))
        self.runner: Runner = build(self.plan, self.clock)
        try:
            self._set_limit(limit, rescale)
            controllers = map(build_controller, self.plan.controllings)
            self.events = Events(self.runner, self.plan.options, self, controllers)
            if point is None and self.events.group.settings:
                self.record("settings", 0, self.events.group.settings)
            if buffer is not None:
                # The plan was checked before the run directory was made.
                assert isinstance(self.runner, Sync)
                load_buffer(self.runner.actor.buffer, buffer, self.plan.options.init)
            if point:
                with explain_load_errors(
                    self.directory.checkpoints_path / f"…-{point.step:012d}", point.writers
                ):
                    self._load(point.components, limit, rescale)
            with keep_directory(self.working_directory):  # an environment may have changed it
                self.hooks.run_start(self.run)
            yield
        finally:
            self.runner.close()

    def _load(
        self,
        state: Mapping[str, State],
        limit: int | None,
        rescale: bool,
    ) -> None:
        settings = state["events"]["controllers"]["settings"]
        if settings:  # before the environments are reset
            self.runner.configure(settings)
        self.runner.load_state_dict(dict(state))
        self._set_limit(limit, rescale)  # the saved clock may have another limit
        self.events.load_state_dict(state["events"])
        if limit is not None:
            self.events.ended = ""
        self.clock.stop = bool(self.events.ended)

    def _set_limit(self, limit: int | None, rescale: bool) -> None:
        """Set the clock's limit, unless it is None, and stretch schedules to the limit if they are rescaled."""
        self.clock.limit = limit or self.clock.limit
        if rescale:
            self.clock.total = self.clock.limit

    def _run(self) -> None:
        try:
            try:
                self.runner.run(self.pause.stop_at_pause(self.events.poll, self.clock))
                self._finish()
            # A NaN on a device can cause any exception, and only this check finds it.
            except Exception:
                # Workers of `async` are on the CPU, and there the optimizer checks every step.
                if self.plan.runner != "async":
                    check_optimizers(self.runner.snapshot())
                raise
        except NonFinite as error:
            moment = f"at step {self.clock.steps:,}, update {self.clock.updates:,}"
            raise NonFinite(
                f"{error.what} {moment}", advice(self.plan, self.checkpoints, error.what)
            ) from error

    def _finish(self) -> None:
        """Save the final checkpoint, or one for a pause or a signal, and set the status."""
        if self.stop.number or (self.pause.reached and not self.events.ended):
            # With --resume-exact every checkpoint restarts the environments. So a signal saves none: without the signal
            # the run would not restart them at this step.
            if self.pause.reached or not restarts_envs(self.runner):
                self.events.checkpoint("step", "paused" if self.pause.reached else "interrupted")
            self.status = "interrupted"
            self.ended = "" if self.stop.number else self.pause.reason
            return
        learner = self.runner.snapshot()
        if isinstance(learner, SupportsFinish):
            learner.finish(self.clock)
        gradients = learner.describe_gradients() if isinstance(learner, Algorithm) else ""
        if gradients:
            self.record("tag", self.clock.steps, {"rlplug.gradients": gradients})
        self.events.finish()
        self.events.checkpoint("final", "final")
        self.status = "finished"
        self.ended = self.events.ended if self.clock.steps < self.clock.limit else ""

    def _final_evaluation(self, steps: int) -> None:
        episodes = self.plan.options.final_eval_episodes
        if episodes == 0:
            return
        self.evaluator.warn_of_slow("the final evaluation plays", 2 * episodes, 1)
        try:
            scores = self.stop.run_until(
                lambda: final_evaluation(self.plan, self.directory, episodes)
            )
        except BadCheckpoint as error:
            raise BadCheckpoint(
                f"no final evaluation: {error}; 'rlplug resume {shell_word(self.run.path)}' tries again"
            ) from error
        if scores is None:
            self.status = "interrupted"
            self.ended = ""
            return
        self.record("final_eval", steps, scores)

    def _record_failure(self, error: BaseException) -> None:
        """Record an error, which the caller raises next; a full disk must not replace it by another error."""
        if isinstance(error, OSError):
            error.add_note(f"continue with 'rlplug resume {shell_word(self.run.path)}'")
        with suppress(OSError):
            replace(self.directory.path / FAILURE, clean(failure_text(error)).encode())
        with suppress(NotWritten):
            step = self.clock.steps
            self.journal.write(
                "error", step, {"type": type(error).__name__, "message": message_of(error)}
            )
            self._record_end()
        self.hooks.run_error(self.run, error)

    def _record_end(self) -> None:
        self.stop.cancel_notice()
        data = {"status": self.status}
        if self.ended:
            data["reason"] = f"stopped at step {self.clock.steps:,}: {self.ended}"
        self.journal.write("end", self.clock.steps, data)
        self.journal.sync()

    def _exit_if_forked(self) -> None:
        """Exit if this is a child process that an environment forked: only the run's own process may write records."""
        if not self.directory.held:
            os._exit(1)

    def _check_directory(self) -> None:
        """Check that the run directory is still there.

        Raises:
            RlplugError: it was deleted or moved.
        """
        self._exit_if_forked()
        if self.journal.is_gone:
            raise missing_run_error(self.run.path)

    # The methods of `Sink`, which `Events` calls.

    def record(self, kind: str, step: int, data: Mapping[str, object]) -> None:
        self._check_directory()
        written = self.journal.write(kind, step, data)
        if kind in ("metrics", "evaluation"):
            numbers = {
                name: value for name, value in written.data.items() if not isinstance(value, bool)
            }
            self.hooks.run_log(self.run, step, numbers)
        if kind == "episodes":
            self.hooks.episodes(self.run, step, written.data)

    def evaluate(self, learner: AnyLearner) -> Evaluation:
        evaluations = self.clock.limit // self.events.eval_every
        result = self.evaluator.evaluate(
            learner, self.clock, wrapper_state(self.runner), evaluations
        )
        self.hooks.evaluation(self.run, self.clock.steps, result.returns, result.lengths)
        if self.recorder.due(self.clock.steps):
            film = self.recorder.record(
                learner, self.evaluator.seed, self.clock, wrapper_state(self.runner)
            )
            if film:
                self.record("film", self.clock.steps, film)
        return result

    def checkpoint(
        self,
        kind: str,
        step: int,
        components: Mapping[str, State],
        reason: str,
    ) -> None:
        self._check_directory()
        self.journal.sync()  # before the checkpoint, which contains the number of the last record
        inexact = self.runner.inexact or self._missing_state(components)
        entries = {
            "reason": reason,
            "exact": not inexact,
            "inexact": inexact,
            "environment": environment(self.plan),
            "created": time.time(),
            "journal": self.journal.seq,
        }
        if wrappers := wrapper_state(self.runner):
            components = {**components, "wrappers": wrappers}
        saved = self.checkpoints.save(kind, step, components, entries)
        self.record("checkpoint", step, {"name": saved.path.name, "reason": reason})
        self.hooks.run_checkpoint(self.run, saved.path, reason)
        if kind == "step" and isinstance(self.runner, Sync):
            self.runner.replace_envs(self.events.group.settings)

    def _missing_state(self, components: Mapping[str, State]) -> str:
        """Return why a checkpoint lacks an environment's state, or ""; warn the first time."""
        reason = "" if restarts_envs(self.runner) else missing_env_state(components)
        if reason and not self.state_missing:
            warn(f"a resume from here on will not be exact: {reason}")
        self.state_missing = self.state_missing or bool(reason)
        return reason

    def watch(self, progress: Progress) -> None:
        self._check_directory()
        if self.on_watch is not None:
            self.on_watch(progress)
