"""Two worlds for agents that must act together, with PettingZoo's parallel interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


class Team:
    """Two agents that see the one-hot number of a place and get the same reward."""

    metadata = {"name": "team"}
    render_mode = None
    possible_agents = ("first", "second")
    agents: tuple[str, ...] = ()
    places = 3
    place = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 1.0, (self.places,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = self.possible_agents
        self.place = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        reward, over = self.play(int(actions["first"]), int(actions["second"]))
        agents = self.possible_agents
        self.agents = () if over else agents
        return (
            self._observations(),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def play(self, first: int, second: int) -> tuple[float, bool]:
        """Move to the next place; return the reward, and whether the episode is over."""
        raise NotImplementedError

    def _observations(self) -> dict[str, Any]:
        seen = np.eye(self.places, dtype=np.float32)[self.place]
        return {agent: seen.copy() for agent in self.possible_agents}

    def close(self) -> None:
        """There is nothing to close."""


class TwoStep(Team):
    """The two-step game (QMIX, section 5): the first agent chooses a game; one gives 7, the other 8 if both play 1."""

    payoffs = ((0.0, 1.0), (1.0, 8.0))

    def play(self, first: int, second: int) -> tuple[float, bool]:
        if self.place == 0:
            self.place = 1 + first
            return 0.0, False
        return (7.0 if self.place == 1 else self.payoffs[first][second]), True


class Climb(Team):
    """Climb three ledges together: reaching the top gives 10, resting together 4, and separating 0.

    If only one agent climbs, the episode ends, so an independent learner prefers to rest.
    """

    def play(self, first: int, second: int) -> tuple[float, bool]:
        if first != second:
            return 0.0, True
        if not first or self.place == self.places - 1:
            return (10.0 if first else 4.0), True
        self.place += 1
        return 0.0, False
