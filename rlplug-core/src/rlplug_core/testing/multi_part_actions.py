"""Small numpy environments with known answers and actions of several parts, like those of `rlplug_core.testing.envs`.

Observations show the right actions. Each part of an action has its own reward, so every wrong part costs return.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlplug_core.nets.actions import split
from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, Obs


class Dials(Vector):
    """Two dials with three and two positions: half a point for each right one. Random: 5 / 12, best: 1."""

    sizes = [3, 2]
    action = spaces.MultiDiscrete(sizes)
    obs = spaces.MultiDiscrete(sizes)

    def open(self, rows: Array) -> None:
        self.set_rows("place", rows, self.generator.integers(0, self.sizes, (self.num_envs, 2)))

    def observe(self) -> Obs:
        return self.state["place"]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        return self.terminate((action == self.state["place"]).mean(1))


class MaskedDials(Vector):
    """The same dials with one forbidden position each: half a point for each dial in the lowest allowed position.

    The masks of both are concatenated, [N, 5]; a forbidden position raises ValueError. Episodes have four steps; the
    best return is 4, random allowed actions get 3.
    """

    sizes = [3, 2]
    action = spaces.MultiDiscrete(sizes)
    obs = spaces.Dict(
        {"obs": spaces.Box(0, 1, (5,), np.float32), "action_mask": spaces.MultiBinary(5)}
    )

    def open(self, rows: Array) -> None:
        drawn = self.generator.integers(0, self.sizes, (self.num_envs, 2))
        self.set_rows("forbidden", rows, drawn)

    def observe(self) -> Obs:
        columns = [
            np.arange(size) != self.state["forbidden"][:, [dial]]
            for dial, size in enumerate(self.sizes)
        ]
        mask = np.concatenate(columns, 1).astype(np.int8)
        return {"obs": mask.astype(np.float32), "action_mask": mask}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        forbidden = self.state["forbidden"]
        if (action == forbidden).any():
            wrong = np.flatnonzero((action == forbidden).any(1)).tolist()
            raise ValueError(f"forbidden actions were taken in the rows {wrong}")
        reward = (action == (forbidden == 0)).mean(1)
        self.open(np.ones(self.num_envs, np.bool_))
        return reward, self.state["length"] + 1 >= 4, np.zeros(self.num_envs, np.bool_)


class Switches(Vector):
    """Three switches: a third of a point for each that equals its lamp. Random actions get 1 / 2, the best 1."""

    action = spaces.MultiBinary(3)
    obs = spaces.MultiBinary(3)

    def open(self, rows: Array) -> None:
        lamps = self.generator.integers(0, 2, (self.num_envs, 3)).astype(np.int8)
        self.set_rows("lamps", rows, lamps)

    def observe(self) -> Obs:
        return self.state["lamps"]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        return self.terminate((action == self.state["lamps"]).mean(1))


class Panel(Vector):
    """One action for a button, two levers, dials and switches: one point for each right kind.

    Levers cost the mean of (a - x / 2)², with x in the observation. One step per episode; the best return is 3, levers
    at 0 and random other parts get 1.17.
    """

    action = spaces.Dict(
        {
            "button": spaces.Discrete(3),
            "levers": spaces.Box(-1, 1, (2,), np.float32),
            "more": spaces.Dict(
                {"dials": spaces.MultiDiscrete([3, 2]), "switches": spaces.MultiBinary(2)}
            ),
        }
    )
    obs = spaces.Dict(
        {
            "levers": spaces.Box(-1, 1, (2,), np.float32),
            "places": spaces.MultiDiscrete([3, 3, 2, 2, 2]),
        }
    )

    def open(self, rows: Array) -> None:
        self.set_rows("levers", rows, self.generator.uniform(-1, 1, (self.num_envs, 2)))
        places = self.generator.integers(0, (3, 3, 2, 2, 2), (self.num_envs, 5))
        self.set_rows("places", rows, places)

    def observe(self) -> Obs:
        return {"levers": self.state["levers"].astype(np.float32), "places": self.state["places"]}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        taken = split(self.action, action)
        places = self.state["places"]
        reward = (taken["button"] == places[:, 0]) + (
            taken["more"]["dials"] == places[:, 1:3]
        ).mean(1)
        reward = reward + (taken["more"]["switches"] == places[:, 3:]).mean(1)
        levers = np.clip(taken["levers"], -1, 1)
        reward -= np.square(levers - self.state["levers"] / 2).mean(1)
        return self.terminate(reward)
