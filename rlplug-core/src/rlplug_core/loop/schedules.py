"""The current values of a run's schedules, for its log records."""

from __future__ import annotations

from collections.abc import Mapping

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.algorithm import Algorithm
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Constant
from rlplug_core.config.schema import flatten
from rlplug_core.protocols import AnyLearner

#: The prefix of these metrics.
SCHEDULE = "schedule/"


class Schedules:
    """The schedules of a learner: learning rates, options that follow a schedule, and epsilon.

    A learner that is not an `Algorithm` has none that can be seen from outside.
    """

    def __init__(self, learner: AnyLearner) -> None:
        self.learner = learner if isinstance(learner, Algorithm) else None
        agent = learner.agent()
        self.explorer: EpsilonGreedy | None = None
        if isinstance(agent, EpsilonGreedy) and not isinstance(agent.epsilon, Constant):
            self.explorer = agent

    def metrics(self, clock: Clock) -> dict[str, float]:
        """Return each value at this moment: `schedule/learning_rate`, `schedule/clip_range`, `schedule/epsilon`.

        Learning rates include the factor of controllers. Several optimizers are told apart by their names, as in
        `schedule/learning_rate/critic`.
        """
        if self.learner is None:
            return {}
        values = self._learning_rates(clock)
        config = self.learner.config
        current: Mapping[str, float] = flatten(config.at(clock)) if config.schedules else {}
        for name in config.schedules:
            if not name.endswith("learning_rate"):
                values[name] = current[name]
        if self.explorer is not None:
            values["epsilon"] = self.explorer.chance(clock)
        return {SCHEDULE + name: float(value) for name, value in values.items()}

    def _learning_rates(self, clock: Clock) -> dict[str, float]:
        assert self.learner is not None
        rates = {
            optimizer.name.rpartition(".")[2]: optimizer.learning_rate(clock.progress) * clock.scale
            for optimizer in self.learner.optimizers
        }
        if len(rates) == 1:
            return {"learning_rate": next(iter(rates.values()))}
        return {f"learning_rate/{name}": rate for name, rate in rates.items()}
