"""MinAtar's Space Invaders in torch, N rows at a time; rules: Young and Tian, 2019, arXiv:1903.03176."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.grid import SIZE, colors, move_aside, one_hot, sticky_action

BOTTOM = SIZE - 1
#: Steps between two shots of the cannon, and of the aliens.
RELOAD = 5
ALIEN_RELOAD = 10
#: The most steps between two moves of the aliens: in the first wave, and after many.
SLOWEST = 12
FASTEST = 6


class SpaceInvaders(TensorWorld):
    """A cannon shoots at aliens for a reward of 1 each; an episode ends if a bullet or an alien reaches it.

    After each wave the next one moves faster. The state is the place of the cannon, the maps of aliens and of bullets
    of both sides, the direction of the aliens, and the steps until they move and both sides can shoot.
    """

    single_observation_space = Box(0, 1, (SIZE, SIZE, 6), np.bool_)
    single_action_space = Discrete(4)  # wait, left, right, fire
    #: The probability that the last action is repeated.
    sticky = 0.1

    def start(self, draw: DeviceGenerator) -> Rows:
        count = self.num_envs
        zeros = torch.zeros(count, dtype=torch.int64, device=self.device)
        sky = torch.zeros((count, SIZE, SIZE), dtype=torch.bool, device=self.device)
        return {
            "cannon": zeros + SIZE // 2,
            "aliens": self._wave().expand(count, -1, -1).clone(),
            "shots": sky,
            "alien_shots": sky.clone(),
            "direction": zeros - 1,
            "interval": zeros + SLOWEST,
            "until_move": zeros + SLOWEST,
            "until_alien_shot": zeros + ALIEN_RELOAD,
            "until_shot": zeros,
            "action": zeros.clone(),
        }

    def _wave(self) -> Tensor:
        wave = torch.zeros((SIZE, SIZE), dtype=torch.bool, device=self.device)
        wave[:4, 2:8] = True
        return wave

    def advance(self, rows: Rows, action: Tensor, draw: DeviceGenerator) -> Moved:
        action = sticky_action(action, rows["action"], self.sticky, draw)
        cannon = move_aside(action, rows["cannon"])
        here = one_hot(torch.full_like(cannon, BOTTOM), cannon)
        alien_shots = _shift(rows["alien_shots"], 1)
        marched = _march(rows)
        reached = (alien_shots | rows["aliens"] | marched["aliens"]) & here
        due = rows["until_alien_shot"] == 0
        shot = _nearest(marched["aliens"], cannon) & due.view(-1, 1, 1)
        fired = _fire(rows, action)
        killed = marched["aliens"] & fired["shots"]
        aliens = marched["aliens"] & ~killed
        cleared = ~_any(aliens)
        moved = {
            **marched,
            **fired,
            "cannon": cannon,
            "aliens": torch.where(cleared.view(-1, 1, 1), self._wave(), aliens),
            "shots": fired["shots"] & ~killed,
            "alien_shots": alien_shots | shot,
            "interval": (rows["interval"] - cleared.long()).clamp(min=FASTEST),
            "until_alien_shot": torch.where(due, ALIEN_RELOAD, rows["until_alien_shot"]) - 1,
            "action": action,
        }
        landed = _turning(rows) & rows["aliens"][:, BOTTOM].any(1)
        return moved, killed.sum((1, 2)).float(), _any(reached) | landed

    def observe(self, rows: Rows) -> Tensor:
        here = one_hot(torch.full_like(rows["cannon"], BOTTOM), rows["cannon"])
        left = (rows["direction"] < 0).view(-1, 1, 1)
        aliens = rows["aliens"]
        parts = [here, aliens, aliens & left, aliens & ~left, rows["shots"], rows["alien_shots"]]
        return torch.stack(parts, 3)

    def render(self, row: int = 0) -> Array:
        return colors(self.observe(self.rows)[row])


def _any(places: Tensor) -> Tensor:
    """Return which of the maps [N, SIZE, SIZE] hold something [N]."""
    return places.any(2).any(1)


def _shift(places: Tensor, down: int) -> Tensor:
    """Return maps [N, SIZE, SIZE] moved down by one row or, with -1, up; the new row is empty."""
    moved = places.roll(down, 1)
    moved[:, 0 if down > 0 else BOTTOM] = False
    return moved


def _fire(rows: Rows, action: Tensor) -> Rows:
    """Return the shots of the cannon after their move, and the steps until it can shoot again."""
    fires = (action == 3) & (rows["until_shot"] == 0)
    cannon = one_hot(torch.full_like(action, BOTTOM), rows["cannon"])
    until_shot = torch.where(fires, RELOAD, rows["until_shot"])
    return {
        "shots": _shift(rows["shots"] | (cannon & fires.view(-1, 1, 1)), -1),
        "until_shot": (until_shot - 1).clamp(min=0),
    }


def _turning(rows: Rows) -> Tensor:
    """Return the mask [N] of rows with aliens at the edge they move toward; they turn there and come down."""
    left = rows["aliens"][:, :, 0].any(1)
    right = rows["aliens"][:, :, BOTTOM].any(1)
    return (rows["until_move"] == 0) & torch.where(rows["direction"] < 0, left, right)


def _march(rows: Rows) -> Rows:
    """Return the aliens after their move, their direction, and the steps until the next one."""
    aliens = rows["aliens"]
    direction = rows["direction"]
    due = rows["until_move"] == 0
    turns = _turning(rows)
    aside = torch.where((direction < 0).view(-1, 1, 1), aliens.roll(-1, 2), aliens.roll(1, 2))
    moved = torch.where(turns.view(-1, 1, 1), aliens.roll(1, 1), aside)
    interval = aliens.sum((1, 2)).minimum(rows["interval"])
    return {
        "aliens": torch.where(due.view(-1, 1, 1), moved, aliens),
        "direction": torch.where(turns, -direction, direction),
        "until_move": torch.where(due, interval, rows["until_move"]) - 1,
    }


def _nearest(aliens: Tensor, cannon: Tensor) -> Tensor:
    """Return masks [N, SIZE, SIZE] of the lowest alien in the column that is nearest to the cannon, the left of two."""
    numbers = torch.arange(SIZE, device=aliens.device)
    distance = (numbers - cannon.unsqueeze(1)).abs() * SIZE + numbers
    column = distance.masked_fill(~aliens.any(1), SIZE * SIZE).argmin(1)
    height = (aliens * (numbers + 1).view(-1, 1)).amax(
        1
    ) - 1  # of the lowest alien in each column, or -1
    return one_hot(height.gather(1, column.unsqueeze(1)).squeeze(1), column)
