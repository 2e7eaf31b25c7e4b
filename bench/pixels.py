"""A game of bricks in 10 × 10 pixels, after MinAtar's Breakout (Young and Tian, 2019, arXiv:1903.03176)."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array

SIZE = 10
#: Rows of the picture that bricks fill; the paddle is in the last one.
BRICKS = slice(1, 4)


class Bricks(Vector):
    """A brick gives 1; the episode ends when the ball passes the paddle, and is truncated after 500 steps.

    The actions are stay, left and right; one time in ten the last action is repeated instead. The ball moves
    diagonally. An observation [4, 10, 10] shows the paddle, the ball, its previous place, and the bricks. A cleared
    wall is built again.
    """

    action = spaces.Discrete(3)
    obs = spaces.Box(0, 1, (4, SIZE, SIZE), np.uint8)
    scribbles = False

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        numbers = ("paddle", "x", "y", "dx", "dy", "last_x", "last_y", "last_action")
        self.state |= {name: np.zeros(num_envs, np.int64) for name in numbers}
        self.state["bricks"] = np.zeros((num_envs, SIZE, SIZE), bool)

    def open(self, rows: Array) -> None:
        s = self.state
        side = self.generator.integers(0, 2, self.num_envs)
        values = {"paddle": 4, "y": 3, "dy": 1, "last_y": 3, "last_action": 0}
        for name, value in values.items():
            s[name][rows] = value
        s["x"][rows] = s["last_x"][rows] = (side * (SIZE - 1))[rows]
        s["dx"][rows] = (1 - 2 * side)[rows]
        s["bricks"][rows] = False
        s["bricks"][rows, BRICKS] = True

    def observe(self) -> Array:
        s = self.state
        every = np.arange(self.num_envs)
        picture = np.zeros((self.num_envs, 4, SIZE, SIZE), np.uint8)
        picture[every, 0, SIZE - 1, s["paddle"]] = 1
        picture[every, 1, s["y"], s["x"]] = 1
        picture[every, 2, s["last_y"], s["last_x"]] = 1
        picture[:, 3] = s["bricks"]
        return picture

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        s = self.state
        every = np.arange(self.num_envs)
        sticky = self.generator.random(self.num_envs) < 0.1
        s["last_action"] = np.where(sticky, s["last_action"], action)
        s["paddle"] = np.clip(s["paddle"] + np.array([0, -1, 1])[s["last_action"]], 0, SIZE - 1)
        s["last_x"] = s["x"].copy()
        s["last_y"] = s["y"].copy()
        x = s["x"] + s["dx"]
        s["dx"] = np.where((x < 0) | (x >= SIZE), -s["dx"], s["dx"])
        x = np.clip(x, 0, SIZE - 1)
        y = s["y"] + s["dy"]
        s["dy"] = np.where(y < 0, 1, s["dy"])
        y = np.maximum(y, 0)
        hit = s["bricks"][every, y, x]
        s["bricks"][every, y, x] = False
        s["dy"] = np.where(hit, -s["dy"], s["dy"])
        y = np.where(hit, s["last_y"], y)
        lost = self._bounce(s, x, y)
        s["x"] = x
        s["y"] = np.where(y == SIZE - 1, s["last_y"], y)
        cleared = ~s["bricks"].any((1, 2)) & (s["y"] > 3)
        s["bricks"][cleared, BRICKS] = True
        return hit.astype(np.float64), lost, s["length"] + 1 >= 500

    def _bounce(self, s: dict[str, Array], x: Array, y: Array) -> Array:
        """Reflect the ball from the paddle or from its corner; return if the paddle missed it, for each row."""
        low = y == SIZE - 1
        caught = low & (s["paddle"] == x)
        corner = low & ~caught & (s["paddle"] == s["last_x"])
        s["dy"] = np.where(caught | corner, -1, s["dy"])
        s["dx"] = np.where(corner, -s["dx"], s["dx"])
        lost: Array = low & ~caught & ~corner
        return lost
