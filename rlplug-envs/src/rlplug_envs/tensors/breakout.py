"""MinAtar's Breakout in torch, N rows at a time; rules: Young and Tian, 2019, arXiv:1903.03176."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.grid import SIZE, colors, move_aside, one_hot, sticky_action

#: The rows of the bricks.
BRICKS = slice(1, 4)
BOTTOM = SIZE - 1


class Breakout(TensorWorld):
    """A paddle keeps a ball in play, which breaks bricks for a reward of 1 each; missing the ball ends the episode.

    The state is the place `y, x` of the ball now and before, its direction, the place of the paddle, the bricks, and
    whether the ball broke a brick in the last step; it then passes through the next one without a reward.
    """

    single_observation_space = Box(0, 1, (SIZE, SIZE, 4), np.bool_)
    single_action_space = Discrete(3)  # wait, left, right
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
        paddle = move_aside(action, rows["paddle"])
        place, speed, ceiling = _fly(rows)
        here = one_hot(*place.unbind(1))
        struck = (rows["bricks"] & here).any(2).any(1) & ~ceiling
        hit = struck & ~rows["struck"]
        bricks = rows["bricks"] & ~(here & hit.view(-1, 1, 1))
        low = (place[:, 0] == BOTTOM) & ~struck
        empty = low & ~bricks.any(2).any(1)
        under = low & (rows["ball"][:, 1] == paddle)
        aside = low & ~under & (place[:, 1] == paddle)
        bounces = hit | under | aside
        y = torch.where(bounces, rows["ball"][:, 0], place[:, 0])
        turned = 1 - 2 * torch.stack([bounces, aside], 1).long()
        moved = {
            "ball": torch.stack([y, place[:, 1]], 1),
            "before": rows["ball"],
            "speed": speed * turned,
            "paddle": paddle,
            "bricks": torch.where(empty.view(-1, 1, 1), self._wall(), bricks),
            "struck": struck,
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


def _fly(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next place and speed of the ball [N, 2] inside the walls, and whether it meets the ceiling [N]."""
    y, x = (rows["ball"] + rows["speed"]).unbind(1)
    ceiling = y < 0
    wall = (x < 0) | (x > BOTTOM)
    turned = 1 - 2 * torch.stack([ceiling, wall], 1).long()
    return torch.stack([y.clamp(min=0), x.clamp(0, BOTTOM)], 1), rows["speed"] * turned, ceiling
