"""Any number of walkers on one floor plan, all stepped at once."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Episode, Spec, State, Timestep
from rlplug_gridworld.grid import DIRECTIONS, Grid


class GridWorld:
    """Walk to the goal from any cell; every step costs 1, so the best return is minus the length of the shortest path.

    Observations are one-hot over the cells. Each row has its own generator for start cells, so a row does not depend on
    the number of rows.
    """

    def __init__(self, id: str, grid: Grid, num_envs: int) -> None:
        self.grid = grid
        self.starts = grid.starts
        self.one_hot = np.eye(len(grid.moves), dtype=np.float32)
        obs = spaces.Box(0, 1, (len(grid.moves),), np.float32)
        self.spec = Spec(obs, spaces.Discrete(len(DIRECTIONS)), num_envs, id)
        self.never = np.zeros(num_envs, np.bool_)
        self.always = np.ones(num_envs, np.bool_)

    def reset(self, seed: int) -> Timestep:
        num_envs = self.spec.num_envs
        self.generators = [Seeds(seed).child("row", row).generator() for row in range(num_envs)]
        self.cell = np.zeros(num_envs, np.int64)
        self.age = np.zeros(num_envs, np.int64)
        self._start(range(num_envs))
        obs = self.one_hot[self.cell]
        reward = np.zeros(num_envs, np.float32)
        return Timestep(
            obs=obs,
            final_obs=obs,
            reward=reward,
            terminated=self.never,
            truncated=self.never,
            is_first=self.always,
            valid=self.never,
            episodes=(),
            ended=False,
            count=0,
        )

    def step(self, action: Array) -> Timestep:
        num_envs = self.spec.num_envs
        self.cell = self.grid.moves[self.cell, action]
        self.age = self.age + 1
        terminated = self.cell == self.grid.goal
        truncated = (self.age >= self.grid.limit) & ~terminated
        over = terminated | truncated
        obs = final_obs = self.one_hot[self.cell]
        episodes = [
            Episode(int(row), -float(self.age[row]), int(self.age[row]))
            for row in np.flatnonzero(over)
        ]
        if episodes:
            self._start([episode.row for episode in episodes])
            obs = self.one_hot[self.cell]
        reward = np.full(num_envs, -1, np.float32)
        return Timestep(
            obs=obs,
            final_obs=final_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            is_first=over,
            valid=self.always,
            episodes=episodes,
            ended=bool(episodes),
            count=num_envs,
        )

    def close(self) -> None:
        """Do nothing; the environment holds no resources."""

    def state_dict(self) -> State:
        states = [generator.bit_generator.state for generator in self.generators]
        return {"cell": self.cell.copy(), "age": self.age.copy(), "generators": states}

    def load_state_dict(self, state: State) -> None:
        self.reset(0)
        self.cell = state["cell"].copy()
        self.age = state["age"].copy()
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.bit_generator.state = saved

    def _start(self, rows: range | list[int]) -> None:
        for row in rows:
            self.cell[row] = self.starts[self.generators[row].integers(len(self.starts))]
            self.age[row] = 0
