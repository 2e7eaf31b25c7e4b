"""Finite decision processes whose best action values are known, as environments: `rlplug_core.testing.tabular:Trap`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array


class Tabular(Vector):
    """A finite process; seen is the state as one-hot [S]. An episode opens in any state that is not terminal.

    A subclass gives `chance` [S, A, S] of every successor, `reward` [S, A, S], which states are `terminal` [S], and
    after how many steps an episode is cut.
    """

    chance: ClassVar[Array]
    reward: ClassVar[Array]
    terminal: ClassVar[Array]
    limit: ClassVar[int]

    @classmethod
    def values(cls, gamma: float, epsilon: float = 0.0) -> Array:
        """The values [S, A] of actions, if afterwards the best one is taken, or any with probability `epsilon`.

        Iterates the Bellman operator, for which a cut is no end, until nothing changes by more than 1e-12.
        """
        values = np.zeros(cls.chance.shape[:2])
        while True:
            following = ((1 - epsilon) * values.max(-1) + epsilon * values.mean(-1)) * ~cls.terminal
            new: Array = (cls.chance * (cls.reward + gamma * following)).sum(-1)
            if np.abs(new - values).max() < 1e-12:
                return new
            values = new

    def open(self, rows: Array) -> None:
        begin = self.generator.choice(np.flatnonzero(~self.terminal), self.num_envs)
        self.state.setdefault("place", np.zeros(self.num_envs, np.int64))[rows] = begin[rows]

    def observe(self) -> Array:
        return np.eye(len(self.terminal), dtype=np.float32)[self.state["place"]]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        before = self.state["place"]
        edges = self.chance[before, action].cumsum(-1)
        after = (edges <= self.generator.random((self.num_envs, 1))).sum(-1)
        self.state["place"] = after
        return (
            self.reward[before, action, after],
            self.terminal[after],
            self.state["length"] + 1 >= self.limit,
        )


def _arrows(states: int, *arrows: tuple[int, int, int, float, float]) -> tuple[Array, Array]:
    """The chances and rewards [S, 2, S] of arrows (state, action, successor, chance, reward)."""
    chance = np.zeros((states, 2, states))
    reward = np.zeros((states, 2, states))
    for state, action, successor, probability, paid in arrows:
        chance[state, action, successor], reward[state, action, successor] = probability, paid
    return chance, reward


class Trap(Tabular):
    """Take 1 at once, or walk round a circle for 0.3 a step, for ever; but every episode is cut after three steps.

    At γ = 0.9 the circle is worth 3. Who takes the cut for the end never sees more than 0.9 of it, and takes the 1.
    """

    obs = spaces.Box(0, 1, (5,), np.float32)
    chance, reward = _arrows(
        5,
        (0, 0, 4, 1, 1.0),
        (0, 1, 1, 1, 0.0),
        *((place, 0, place % 3 + 1, 1, 0.3) for place in (1, 2, 3)),
        *((place, 1, 4, 1, 0.0) for place in (1, 2, 3)),
    )
    terminal = np.arange(5) == 4
    limit = 3


class Fork(Tabular):
    """Take 0.9 or 1.1 at once, or go round the circle for 0.2, 0.3 or 0.4 a step, for ever; all is cut as in `Trap`.

    Chance says whether one or two places are passed, and no action does: behind the first one all are alike. So sums of
    rewards over several steps, which are right only for the policy that took these steps, are right for any.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)
    chance, reward = _arrows(
        6,
        (0, 0, 4, 0.5, 0.9),
        (0, 0, 5, 0.5, 1.1),
        (0, 1, 1, 1, 0.0),
        *(
            (place, action, (place - 1 + far) % 3 + 1, 0.5, (0.2, 0.3, 0.4)[place - 1])
            for place in (1, 2, 3)
            for action in (0, 1)
            for far in (1, 2)
        ),
    )
    terminal = np.arange(6) >= 4
    limit = 3


class Drift(Tabular):
    """Four places in a circle: go one or two on, as chance will, or leave for one of two prizes. Cut after 12 steps.

    Leaving is best in place 0 alone (at γ = 0.9). Everything is random: which place, and how much one gets.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)
    chance, reward = _arrows(
        6,
        *(
            (place, 0, (place + far) % 4, 0.5, (0.0, 0.3, 0.1, 0.2)[place])
            for place in range(4)
            for far in (1, 2)
        ),
        *(
            (place, 1, 4 + lucky, 0.5, (1.9, 0.9, 0.8, 1.0)[place] + (0.1 if lucky else -0.1))
            for place in range(4)
            for lucky in (0, 1)
        ),
    )
    terminal = np.arange(6) >= 4
    limit = 12
