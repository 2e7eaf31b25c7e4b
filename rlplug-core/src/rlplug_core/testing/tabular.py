"""Finite decision processes with known action values, as environments: `rlplug_core.testing.tabular:Trap`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array


class Tabular(Vector):
    """A finite process with one-hot states [S] as observations; episodes start in a random state that is not terminal.

    A subclass defines the probability of each successor (`chance` [S, A, S]), `reward` [S, A, S], the `terminal` states
    [S], and the number of steps after which an episode is truncated (`limit`).
    """

    chance: ClassVar[Array]
    reward: ClassVar[Array]
    terminal: ClassVar[Array]
    limit: ClassVar[int]

    @classmethod
    def values(cls, gamma: float, epsilon: float = 0.0) -> Array:
        """Return action values [S, A] of the greedy policy that takes a random action with probability `epsilon`.

        Iterates the Bellman operator, which ignores truncation, until nothing changes by more than 1e-12.
        """
        values = np.zeros(cls.chance.shape[:2])
        while True:
            next_values = (
                (1 - epsilon) * values.max(-1) + epsilon * values.mean(-1)
            ) * ~cls.terminal
            new: Array = (cls.chance * (cls.reward + gamma * next_values)).sum(-1)
            if np.abs(new - values).max() < 1e-12:
                return new
            values = new

    def open(self, rows: Array) -> None:
        start = self.generator.choice(np.flatnonzero(~self.terminal), self.num_envs)
        self.set_rows("place", rows, start)

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


def _arrows(
    states: int,
    *arrows: tuple[int, int, int, float, float],
) -> tuple[Array, Array]:
    """Return probabilities and rewards [S, 2, S] of arrows (state, action, successor, probability, reward)."""
    chance = np.zeros((states, 2, states))
    reward = np.zeros((states, 2, states))
    for state, action, successor, probability, amount in arrows:
        chance[state, action, successor] = probability
        reward[state, action, successor] = amount
    return chance, reward


class Trap(Tabular):
    """Take 1 at once, or walk in a circle for 0.3 per step forever; every episode is truncated after three steps.

    At γ = 0.9 the circle is worth 3. An agent that treats truncation as termination expects at most 0.9 and takes the
    1."""

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
    """Take 0.9 or 1.1 at once, or walk in the circle for 0.2, 0.3 or 0.4 per step forever; truncated as in `Trap`.

    The number of passed places, one or two, is random and independent of the action: after the first step all actions
    are equal. So n-step returns, which are only right for the policy that acted, are right for every policy.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)
    chance, reward = _arrows(
        6,
        (0, 0, 4, 0.5, 0.9),
        (0, 0, 5, 0.5, 1.1),
        (0, 1, 1, 1, 0.0),
        *(
            (place, action, (place - 1 + distance) % 3 + 1, 0.5, (0.2, 0.3, 0.4)[place - 1])
            for place in (1, 2, 3)
            for action in (0, 1)
            for distance in (1, 2)
        ),
    )
    terminal = np.arange(6) >= 4
    limit = 3


class Drift(Tabular):
    """Four places in a circle: move one or two places at random, or leave for one of two prizes.

    Episodes are truncated after 12 steps. Leaving is best only in place 0 (at γ = 0.9). Places and prizes are random.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)
    chance, reward = _arrows(
        6,
        *(
            (place, 0, (place + distance) % 4, 0.5, (0.0, 0.3, 0.1, 0.2)[place])
            for place in range(4)
            for distance in (1, 2)
        ),
        *(
            (place, 1, 4 + lucky, 0.5, (1.9, 0.9, 0.8, 1.0)[place] + (0.1 if lucky else -0.1))
            for place in range(4)
            for lucky in (0, 1)
        ),
    )
    terminal = np.arange(6) >= 4
    limit = 12
