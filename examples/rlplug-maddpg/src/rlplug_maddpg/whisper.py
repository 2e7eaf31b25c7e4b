"""A world with PettingZoo's parallel interface: one agent must tell the other a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces


class Whisper:
    """The speaker sees a number from -1 to 1 in the first step; the listener must say it in the second one.

    The speaker's action in the first step is the listener's observation in the second one, and both get minus the
    squared error. Only the state of the world has the number and the message together: an agent that learns
    independently cannot see the effect of its message. The best return is 0; without a message it is -1/3.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "whisper"}
    render_mode = None
    possible_agents = ("speaker", "listener")
    #: Whether it is the second step, the number, the message.
    state_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.generator = np.random.default_rng(0)
        self.later = False
        self.number = 0.0
        self.message = 0.0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.later = False
        self.number = float(self.generator.uniform(-1, 1))
        self.message = 0.0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        agents = self.agents
        over = self.later
        error = float(actions["listener"][0]) - self.number
        reward = -(error**2) if over else 0.0
        self.message = float(actions["speaker"][0])
        self.later = True
        self.agents = [] if over else agents
        return (
            self._observations(),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def state(self) -> Any:
        return np.array([self.later, self.number, self.message], np.float32)

    def _observations(self) -> dict[str, Any]:
        seen = 0.0 if self.later else self.number
        return {
            "speaker": np.array([self.later, seen], np.float32),
            "listener": np.array([self.later, self.message], np.float32),
        }

    def close(self) -> None:
        """There is nothing to close."""
