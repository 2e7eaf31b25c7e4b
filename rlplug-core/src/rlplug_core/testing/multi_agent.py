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
        self._start()

    def _start(self) -> None:
        """Start an episode in all worlds."""
        self.round = 0
        self.totals = np.zeros(self.spec.num_envs)
        self.obs = np.zeros((self.spec.num_envs, 2), np.float32)

    def reset(self, seed: int) -> Timestep:
        self._start()
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
        self.round += 1
        final_obs = np.eye(2, dtype=np.float32)[pairs[:, ::-1].reshape(-1)]
        ended = np.full(self.spec.num_envs, self.round == ROUNDS)
        episodes: list[Episode] = []
        self.obs = final_obs
        if ended.any():
            episodes = self._end_episodes()
        return Timestep(
            obs=self.obs,
            final_obs=final_obs,
            reward=reward,
            terminated=ended,
            truncated=np.zeros_like(ended),
            is_first=ended.copy(),
            valid=np.ones_like(ended),
            episodes=episodes,
            ended=bool(ended.any()),
            count=len(ended),
        )

    def _end_episodes(self) -> list[Episode]:
        """Return the episodes of all rows, and start the next ones."""
        named = zip(self.totals, self.spec.agents, strict=True)
        episodes = [
            Episode(row, float(total), ROUNDS, agent=name)
            for row, (total, name) in enumerate(named)
        ]
        self._start()
        return episodes

    def state_dict(self) -> State:
        return {"at": self.round, "totals": self.totals.copy(), "obs": self.obs.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round = state["at"]
        self.totals = np.array(state["totals"])
        self.obs = np.array(state["obs"])

    def close(self) -> None:
        pass
