"""MinAtar's Breakout in torch, N rows at a time; rules: Young and Tian, 2019, arXiv:1903.03176."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.grid import SIZE, colors, one_hot, sticky_action

#: The horizontal moves of the actions: wait, left, right.
MOVES = (0, -1, 1)
#: The rows of the bricks.
BRICKS = slice(1, 4)
BOTTOM = SIZE - 1


class Breakout(TensorWorld):
    """A paddle keeps a ball in play, which breaks bricks for a reward of 1 each; missing the ball ends the episode.

    The state is the place `y, x` of the ball now and before, its direction, the place of the paddle, the bricks, and
    whether the ball broke a brick in the last step; it then passes through the next one without a reward.
    """

    single_observation_space = Box(0, 1, (SIZE, SIZE, 4), np.bool_)
    single_action_space = Discrete(len(MOVES))
    #: The probability that the last action is repeated.
    sticky = 0.1

    def start(self, draw: DeviceGenerator) -> Rows:
        count = self.num_envs
        zeros = torch.zeros(count, dtype=torch.int64, device=self.device)
        x = torch.where(draw.random((count,)) < 0.5, 0, BOTTOM)
        place = torch.stack([zeros + 3, x], 1)
        return {
            "ball": place,
            "before": place.clone(),
            "speed": torch.stack([zeros + 1, 1 - 2 * (x > 0).long()], 1),
            "paddle": zeros + 4,
            "bricks": self._wall().expand(count, -1, -1).clone(),
            "struck": zeros.bool(),
            "action": zeros,
        }

    def _wall(self) -> Tensor:
        wall = torch.zeros((SIZE, SIZE), dtype=torch.bool, device=self.device)
        wall[BRICKS] = True
        return wall

    def advance(self, rows: Rows, action: Tensor, draw: DeviceGenerator) -> Moved:
        action = sticky_action(action, rows["action"], self.sticky, draw)
        move = (action == 2).long() - (action == 1).long()
        paddle = (rows["paddle"] + move).clamp(0, BOTTOM)
        before = rows["ball"]
        speed_y, speed_x = rows["speed"].unbind(1)
        y, x = (before + rows["speed"]).unbind(1)
        speed_x = torch.where((x < 0) | (x > BOTTOM), -speed_x, speed_x)
        x = x.clamp(0, BOTTOM)
        ceiling = y < 0
        y = y.clamp(min=0)
        here = one_hot(y, x)
        brick = (rows["bricks"] & here).any(2).any(1) & ~ceiling
        hit = brick & ~rows["struck"]
        bricks = rows["bricks"] & ~(here & hit.view(-1, 1, 1))
        low = (y == BOTTOM) & ~ceiling & ~brick
        empty = low & ~bricks.any(2).any(1)
        bricks = torch.where(empty.view(-1, 1, 1), self._wall(), bricks)
        under = low & (before[:, 1] == paddle)
        aside = low & ~under & (x == paddle)
        y = torch.where(hit | under | aside, before[:, 0], y)
        speed_y = torch.where(ceiling | hit | under | aside, -speed_y, speed_y)
        speed_x = torch.where(aside, -speed_x, speed_x)
        moved = {
            "ball": torch.stack([y, x], 1),
            "before": before,
            "speed": torch.stack([speed_y, speed_x], 1),
            "paddle": paddle,
            "bricks": bricks,
            "struck": brick,
            "action": action,
        }
        return moved, hit.float(), low & ~under & ~aside

    def observe(self, rows: Rows) -> Tensor:
        bottom = torch.full_like(rows["paddle"], BOTTOM)
        parts = [
            one_hot(bottom, rows["paddle"]),
            one_hot(*rows["ball"].unbind(1)),
            one_hot(*rows["before"].unbind(1)),
            rows["bricks"],
        ]
        return torch.stack(parts, 3)

    def render(self, row: int = 0) -> Array:
        return colors(self.observe(self.rows)[row])
