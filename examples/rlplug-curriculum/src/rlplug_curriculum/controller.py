"""A goal curriculum: goals move further away as soon as the current ones are reached (Florensa et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlplug_core.clock import Steering
from rlplug_core.config.options import Config, Count, Fraction, Positive
from rlplug_core.types import Episode, State


@dataclass(frozen=True)
class GoalCurriculumConfig(Config):
    """The comments are the help: `rlplug info goal-curriculum` shows them."""

    attribute: str = "goal"  # attribute of the environment with the distance of the goal
    begin: Positive = 2.0  # its initial value
    end: Positive = 20.0  # its final value
    step: Positive = 1.0  # distance that the goal moves each time
    success: Fraction = 0.6  # share of successful episodes that moves the goal
    episodes: Count = 20  # number of recent episodes that are counted, all at the current distance


class GoalCurriculum:
    """Moves the goal away when most episodes reach it, according to `info["is_success"]`."""

    Config = GoalCurriculumConfig
    #: This controller never stops a run.
    reason = ""

    def __init__(self, config: GoalCurriculumConfig) -> None:
        self.config = config
        self.distance = config.begin
        self.successes = list[bool]()

    def ended(self, episodes: Sequence[Episode], clock: Steering) -> None:
        """Count successes. Episodes that started before the last move count too: they were easier and are few."""
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
