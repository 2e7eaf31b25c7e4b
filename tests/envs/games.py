"""Small multi-agent worlds with known results; as a PettingZoo module, the prisoner's dilemma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec

#: The row player's reward for (own, other's) action: 0 cooperates, 1 defects. Defecting is dominant.
DILEMMA = ((3.0, 0.0), (5.0, 1.0))


class Dilemma(ParallelEnv[str, Any, int]):
    """The prisoner's dilemma, `rounds` times; an agent observes the other's last action (2: none yet)."""

    metadata = {"name": "dilemma", "is_parallelizable": True}
    render_mode = None

    def __init__(self, rounds: int = 5, cut: bool = False) -> None:
        self.possible_agents = ["row", "column"]
        self.rounds = rounds
        self.cut = cut
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        self.at = 0
        return dict.fromkeys(self.agents, 2), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.at += 1
        row, column = int(actions["row"]), int(actions["column"])
        over = self.at == self.rounds
        results = (
            {"row": column, "column": row},
            {"row": DILEMMA[row][column], "column": DILEMMA[column][row]},
            dict.fromkeys(self.agents, over and not self.cut),
            dict.fromkeys(self.agents, over and self.cut),
            {agent: {} for agent in self.agents},
        )
        self.agents = [] if over else self.agents
        return results


class Leaving(ParallelEnv[str, Any, int]):
    """Agent i of three leaves after i + 1 steps, the last by truncation; its reward is 10 i + the step."""

    metadata = {"name": "leaving"}

    def __init__(self) -> None:
        self.possible_agents = ["a_0", "a_1", "a_2"]
        self.agents = []
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 100, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.at = 0
        self.luck = float(self.rng.integers(100))
        return {agent: self._observe(agent, 0) for agent in self.agents}, {}

    def _observe(self, agent: str, action: int) -> Any:
        return np.array([self.at, action, self.luck], np.float32)

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents)
        self.at += 1
        present = self.agents
        ends = {agent: self.at > int(agent[-1]) for agent in self.agents}
        self.agents = [agent for agent in present if not ends[agent]]
        return (
            {agent: self._observe(agent, actions[agent]) for agent in present},
            {agent: 10.0 * int(agent[-1]) + self.at for agent in present},
            {agent: ends[agent] and agent != "a_2" for agent in present},
            {agent: ends[agent] and agent == "a_2" for agent in present},
            {agent: {} for agent in present},
        )


def parallel_env(rounds: int = 5, cut: bool = False) -> Dilemma:
    return Dilemma(rounds, cut)


def in_turns(rounds: int = 5, cut: bool = False) -> AECEnv[str, Any, int]:
    return parallel_to_aec(Dilemma(rounds, cut))
