"""A small world with two agents: the prisoner's dilemma, as an rlplug environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlplug_core.types import Array, Episode, Spec, State, Timestep

#: Reward for (own action, other's action): 0 cooperates, 1 defects. Defecting is better for every action of the other.
DILEMMA = np.array(((3.0, 0.0), (5.0, 1.0)), np.float32)
ROUNDS = 4


class Dilemma:
    """`num_envs` worlds of two agents, `row` and `column`; they play `ROUNDS` rounds and see each other's action."""

    def __init__(self, num_envs: int) -> None:
        rows = 2 * num_envs
        agents = ("row", "column") * num_envs
        self.spec = Spec(
            spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), rows, "Dilemma", agents=agents
        )
        self.at = 0
        self.totals = np.zeros(rows)
        self.obs = np.zeros((rows, 2), np.float32)

    def reset(self, seed: int) -> Timestep:
        self.at = 0
        self.totals = np.zeros(self.spec.num_envs)
        self.obs = np.zeros((self.spec.num_envs, 2), np.float32)
        never = np.zeros(self.spec.num_envs, np.bool_)
        return Timestep.opening(
            self.obs, np.zeros(self.spec.num_envs, np.float32), is_first=~never, never=never
        )

    def step(self, action: Array) -> Timestep:
        pairs = action.reshape(-1, 2)
        own_choice, other_choice = pairs.T
        reward = np.stack(
            [DILEMMA[own_choice, other_choice], DILEMMA[other_choice, own_choice]], 1
        ).reshape(-1)
        self.totals = self.totals + reward
        self.at = self.at + 1
        after = np.eye(2, dtype=np.float32)[pairs[:, ::-1].reshape(-1)]
        over = np.full(self.spec.num_envs, self.at == ROUNDS)
        episodes: list[Episode] = []
        self.obs = after
        if over.any():
            episodes = self._end_episodes()
        return Timestep(
            obs=self.obs,
            final_obs=after,
            reward=reward,
            terminated=over,
            truncated=np.zeros_like(over),
            is_first=over.copy(),
            valid=np.ones_like(over),
            episodes=episodes,
            ended=bool(over.any()),
            count=len(over),
        )

    def _end_episodes(self) -> list[Episode]:
        """Return the episodes of all rows, and start the next ones."""
        named = zip(self.totals, self.spec.agents, strict=True)
        episodes = [
            Episode(row, float(total), ROUNDS, agent=name)
            for row, (total, name) in enumerate(named)
        ]
        self.at = 0
        self.totals = np.zeros_like(self.totals)
        self.obs = np.zeros_like(self.obs)
        return episodes

    def state_dict(self) -> State:
        return {"at": self.at, "totals": self.totals.copy(), "obs": self.obs.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        self.totals = np.array(state["totals"])
        self.obs = np.array(state["obs"])

    def close(self) -> None:
        pass
