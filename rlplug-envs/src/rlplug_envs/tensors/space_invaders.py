"""MinAtar's Space Invaders in torch, N rows at a time; rules: Young and Tian, 2019, arXiv:1903.03176."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor
from torch.nn.functional import pad

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, select_rows
from rlplug_envs.tensors.grid import BOTTOM, SIZE, GridGame, has_any, in_bottom_row, move_sideways

#: The first places of the aliens: rows and columns.
WAVE = slice(0, 4), slice(2, 8)
#: Steps between two shots of the cannon, and of the aliens.
RELOAD = 5
ALIEN_RELOAD = 10
#: The most steps between two moves of the aliens: in the first wave, and after many.
SLOWEST = 12
FASTEST = 6


class SpaceInvaders(GridGame):
    """A cannon shoots at aliens for a reward of 1 each; an episode ends if a bullet or an alien reaches it.

    After each wave the next one moves faster. The state is the place of the cannon, the maps of aliens and of bullets
    of both sides, the direction of the aliens, and the steps until they move and both sides can shoot.
    """

    single_observation_space = Box(0, 1, (SIZE, SIZE, 6), np.bool_)
    single_action_space = Discrete(4)  # wait, left, right, fire

    def first_states(self, draw: DeviceGenerator) -> Rows:
        return {
            "cannon": self.constant(SIZE // 2),
            "aliens": self.rectangle(*WAVE),
            "shots": self.rectangle(),
            "alien_shots": self.rectangle(),
            "direction": self.constant(-1),
            "interval": self.constant(SLOWEST),
            "until_move": self.constant(SLOWEST),
            "until_alien_shot": self.constant(ALIEN_RELOAD),
            "until_shot": self.constant(0),
        }

    def play(self, rows: Rows, action: Tensor) -> Moved:
        cannon = move_sideways(action, rows["cannon"])
        fires = (action == 3) & (rows["until_shot"] == 0)
        fired = in_bottom_row(rows["cannon"]) & fires.view(-1, 1, 1)
        shots = pad((rows["shots"] | fired)[:, 1:], (0, 0, 0, 1))  # one place up
        alien_shots = pad(rows["alien_shots"][:, :-1], (0, 0, 1, 0))  # one place down
        moved_aliens, landed = _move_aliens(rows)
        reached = in_bottom_row(cannon) & (alien_shots | rows["aliens"] | moved_aliens["aliens"])
        shoots = (rows["until_alien_shot"] == 0).view(-1, 1, 1)
        killed = moved_aliens["aliens"] & shots
        aliens = moved_aliens["aliens"] & ~killed
        cleared = ~has_any(aliens)
        next_rows = {
            **moved_aliens,
            "cannon": cannon,
            "aliens": select_rows(cleared, self.rectangle(*WAVE), aliens),
            "shots": shots & ~killed,
            "alien_shots": alien_shots | (_nearest(moved_aliens["aliens"], cannon) & shoots),
            "interval": (rows["interval"] - cleared.long()).clamp(min=FASTEST),
            "until_alien_shot": (rows["until_alien_shot"] - 1) % ALIEN_RELOAD,
            "until_shot": (torch.where(fires, RELOAD, rows["until_shot"]) - 1).clamp(min=0),
        }
        return next_rows, killed.sum((1, 2)).float(), has_any(reached) | landed

    def observe(self, rows: Rows) -> Tensor:
        aliens = rows["aliens"]
        moving_left = aliens & (rows["direction"] < 0).view(-1, 1, 1)
        cannon = in_bottom_row(rows["cannon"])
        channels = [
            cannon,
            aliens,
            moving_left,
            aliens & ~moving_left,
            rows["shots"],
            rows["alien_shots"],
        ]
        return torch.stack(channels, 3)


def _move_aliens(rows: Rows) -> tuple[Rows, Tensor]:
    """Return the aliens after their move, their direction, the steps until the next one, and which rows have landed.

    Aliens at the edge that they move toward turn and come down; those in the bottom row land.
    """
    aliens = rows["aliens"]
    left = rows["direction"] < 0
    moves_now = rows["until_move"] == 0
    turns = moves_now & torch.where(left, aliens[:, :, 0].any(1), aliens[:, :, BOTTOM].any(1))
    shifted = select_rows(left, aliens.roll(-1, 2), aliens.roll(1, 2))
    moved = select_rows(turns, aliens.roll(1, 1), shifted)
    interval = aliens.sum((1, 2)).minimum(rows["interval"])
    moved_aliens = {
        "aliens": select_rows(moves_now, moved, aliens),
        "direction": torch.where(turns, -rows["direction"], rows["direction"]),
        "until_move": torch.where(moves_now, interval, rows["until_move"]) - 1,
    }
    return moved_aliens, turns & aliens[:, BOTTOM].any(1)


def _nearest(aliens: Tensor, cannon: Tensor) -> Tensor:
    """Return masks [N, SIZE, SIZE] of the lowest alien in the column that is nearest to the cannon, the left of two."""
    x = torch.arange(SIZE, device=aliens.device)
    distance = (x - cannon.unsqueeze(1)).abs().masked_fill(~aliens.any(1), SIZE)
    column = (distance * SIZE + x).argmin(1).view(-1, 1, 1)
    below = aliens.flip(1).cumsum(1).flip(1)  # the aliens at and below each place
    return aliens & (below == 1) & (x == column)
