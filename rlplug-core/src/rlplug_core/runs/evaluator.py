"""Evaluations during training: play episodes with the current weights, and warn if they are slow or cut short."""

from __future__ import annotations

import time

from rlplug_core.clock import Clock
from rlplug_core.errors import plain, warn
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.transform import freeze
from rlplug_core.protocols import AnyLearner, Env, SupportsEvaluationRank
from rlplug_core.types import State

#: The user is warned if the evaluations of a run take more seconds than this.
SLOW = 60.0


class Evaluator:
    """Plays a run's evaluations in a separate environment, which is made at the first one."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seed = plan.seeds().child("evaluation").integer()
        self.env: Env | None = None
        #: Seconds of an episode in the last evaluation; only warnings depend on it.
        self.episode_seconds = 0.0
        self.has_warned_of_cut = False

    def evaluate(
        self,
        learner: AnyLearner,
        clock: Clock,
        wrappers: State,
        evaluations: int,
    ) -> Evaluation:
        """Play episodes with the current weights.

        Args:
            wrappers: the learned state of the training environment's wrappers.
            evaluations: the number of evaluations of the run.
        """
        if self.env is None:
            self.env = self.plan.make_eval_env(self.plan.options.eval_episodes)
        freeze(self.env, wrappers)
        started = time.monotonic()
        has_rank = isinstance(learner, SupportsEvaluationRank)
        signals = InfoColumns.of(learner, self.env) if has_rank else None
        result = evaluate(learner.agent(), self.env, self.seed, clock, signals=signals)
        is_first = self.episode_seconds == 0.0
        self.episode_seconds = (time.monotonic() - started) / result.episodes
        if is_first:
            self.warn_of_slow("each evaluation plays", result.episodes, evaluations)
        if result.cut and not self.has_warned_of_cut:
            self.has_warned_of_cut = True
            warn(f"{plain(self.plan.env)}: {result.cut_message}")
        return result

    def warn_of_slow(self, subject: str, episodes: int, times: int) -> None:
        """Warn if evaluations take long. Cutting them short would make results depend on the speed of the machine."""
        seconds = episodes * self.episode_seconds
        if seconds * times < SLOW:
            return
        frequency = f", {times} times in this run" if times > 1 else ""
        warn(
            f"{subject} {episodes} episodes, about {seconds:.0f} s{frequency}; "
            "--eval-episodes, --eval-every and --final-eval-episodes change this"
        )

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
