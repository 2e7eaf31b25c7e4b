"""MinAtar's Breakout in torch, N rows at a time; rules: Young and Tian, 2019, arXiv:1903.03176."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, select_rows
from rlplug_envs.tensors.grid import (
    BOTTOM,
    SIZE,
    GridGame,
    has_any,
    in_bottom_row,
    move_sideways,
    one_hot,
)

#: The places of the bricks: rows and columns.
WALL = slice(1, 4), slice(SIZE)


class Breakout(GridGame):
    """A paddle keeps a ball in play, which breaks bricks for a reward of 1 each; missing the ball ends the episode.

    The state is the place `y, x` of the ball now and one step before, its direction, the place of the paddle, the
    bricks, and whether the ball broke a brick in the last step; it then passes through the next one without a reward.
    """

    single_observation_space = Box(0, 1, (SIZE, SIZE, 4), np.bool_)
    single_action_space = Discrete(3)  # wait, left, right

    def first_states(self, draw: DeviceGenerator) -> Rows:
        x = torch.where(draw.random((self.num_envs,)) < 0.5, 0, BOTTOM)
        position = torch.stack([self.constant(3), x], 1)
        return {
            "ball": position,
            "before": position.clone(),
            "speed": torch.stack([self.constant(1), 1 - 2 * (x > 0).long()], 1),
            "paddle": self.constant(4),
            "bricks": self.rectangle(*WALL),
            "struck": self.constant(0).bool(),
        }

    def play(self, rows: Rows, action: Tensor) -> Moved:
        paddle = move_sideways(action, rows["paddle"])
        position, speed, ceiling = _move_ball(rows)
        ball_mask = one_hot(*position.unbind(1))
        struck = has_any(rows["bricks"] & ball_mask) & ~ceiling
        hit = struck & ~rows["struck"]
        bricks = rows["bricks"] & ~(ball_mask & hit.view(-1, 1, 1))
        at_bottom = (position[:, 0] == BOTTOM) & ~struck
        is_cleared = at_bottom & ~has_any(bricks)
        # The paddle is in the column that the ball comes from, or in the one that it moves to.
        is_under = at_bottom & (rows["ball"][:, 1] == paddle)
        is_aside = at_bottom & ~is_under & (position[:, 1] == paddle)
        bounces = hit | is_under | is_aside
        y = torch.where(bounces, rows["ball"][:, 0], position[:, 0])
        signs = 1 - 2 * torch.stack([bounces, is_aside], 1).long()
        next_rows = {
            "ball": torch.stack([y, position[:, 1]], 1),
            "before": rows["ball"],
            "speed": speed * signs,
            "paddle": paddle,
            "bricks": select_rows(is_cleared, self.rectangle(*WALL), bricks),
            "struck": struck,
        }
        return next_rows, hit.float(), at_bottom & ~is_under & ~is_aside

    def observe(self, rows: Rows) -> Tensor:
        channels = [
            in_bottom_row(rows["paddle"]),
            one_hot(*rows["ball"].unbind(1)),
            one_hot(*rows["before"].unbind(1)),
            rows["bricks"],
        ]
        return torch.stack(channels, 3)


def _move_ball(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next place and speed of the ball [N, 2] inside the walls, and whether it meets the ceiling [N]."""
    y, x = (rows["ball"] + rows["speed"]).unbind(1)
    ceiling = y < 0
    wall = (x < 0) | (x > BOTTOM)
    signs = 1 - 2 * torch.stack([ceiling, wall], 1).long()
    return torch.stack([y.clamp(min=0), x.clamp(0, BOTTOM)], 1), rows["speed"] * signs, ceiling
