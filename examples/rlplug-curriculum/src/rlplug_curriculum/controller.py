"""A goal curriculum: goals move further away as soon as the present ones are reached (Florensa et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlplug_core.clock import Steering
from rlplug_core.config.options import Config, Count, Fraction, Positive
from rlplug_core.types import Episode, State


@dataclass(frozen=True)
class GoalCurriculumConfig(Config):
    """The comments are the help: `rlplug info goal-curriculum` shows them."""

    attribute: str = "goal"  # the attribute of the environment that says how far the goal is
    begin: Positive = 2.0  # its value at the beginning
    end: Positive = 20.0  # its value at the end
    step: Positive = 1.0  # how much further it moves
    success: Fraction = 0.6  # as soon as this share of episodes succeeds
    episodes: Count = 20  # of so many, all at the present distance


class GoalCurriculum:
    """Moves the goal away when most episodes reach it; an episode succeeds that says so in `info`."""

    Config = GoalCurriculumConfig
    #: It never stops a run.
    reason = ""

    def __init__(self, config: GoalCurriculumConfig) -> None:
        self.config, self.distance, self.successes = config, config.begin, list[bool]()

    def ended(self, episodes: Sequence[Episode], clock: Steering) -> None:
        """Episodes that began before the last move count too: they were easier, and are few."""
        c = self.config
        self.successes = [*self.successes, *(bool(episode.success) for episode in episodes)][
            -c.episodes :
        ]
        if len(self.successes) == c.episodes and sum(self.successes) >= c.success * c.episodes:
            self.distance = min(self.distance + c.step, c.end)
            self.successes = []

    def settings(self) -> Mapping[str, object]:
        return {self.config.attribute: self.distance}

    def state_dict(self) -> State:
        return {"distance": self.distance, "successes": list(self.successes)}

    def load_state_dict(self, state: State) -> None:
        self.distance = state["distance"]
        self.successes = list(state["successes"])
