"""`GridGame`, the base of MinAtar's games in torch, and masks of places on their grid."""

from __future__ import annotations

import colorsys

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator, to_host
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array

#: The height and width of the grid.
SIZE = 10
BOTTOM = SIZE - 1
#: The pixels of a cell in pictures.
PIXELS = 16


class GridGame(TensorWorld):
    """A game with sticky actions; its observations [N, SIZE, SIZE, C] are bool.

    Attributes:
        sticky: the probability that the last action is repeated.
    """

    sticky = 0.1

    def first_states(self, draw: DeviceGenerator) -> Rows:
        """Return the first states of new episodes, without the last action."""
        raise NotImplementedError

    def play(self, rows: Rows, action: Tensor) -> Moved:
        """Return the next states, the rewards and the ends, as `advance`; sticky actions are already replaced."""
        raise NotImplementedError

    def start(self, draw: DeviceGenerator) -> Rows:
        return {**self.first_states(draw), "action": self.constant(0)}

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        action = sticky_action(action, rows["action"], self.sticky, draw)
        moved, reward, terminated = self.play(rows, action)
        return {**moved, "action": action}, reward, terminated

    def render(self, row: int = 0) -> Array:
        return colors(self.observe(self.rows)[row])

    def constant(self, value: int) -> Tensor:
        """Return the same whole number for each row, [N]."""
        return torch.full((self.num_envs,), value, device=self.device)

    def rectangle(self, y: slice = slice(0), x: slice = slice(0)) -> Tensor:
        """Return masks [N, SIZE, SIZE] that are True in a rectangle; without one, nowhere."""
        mask = torch.zeros((self.num_envs, SIZE, SIZE), dtype=torch.bool, device=self.device)
        mask[:, y, x] = True
        return mask


def one_hot(y: Tensor, x: Tensor) -> Tensor:
    """Return masks [N, SIZE, SIZE] that are True at the places `y, x` [N]; nowhere for places outside."""
    places = torch.arange(SIZE, device=y.device)
    return (y.unsqueeze(1) == places).unsqueeze(2) & (x.unsqueeze(1) == places).unsqueeze(1)


def in_bottom_row(x: Tensor) -> Tensor:
    """Return masks [N, SIZE, SIZE] that are True in the bottom row at `x` [N]."""
    return one_hot(torch.full_like(x, BOTTOM), x)


def has_any(places: Tensor) -> Tensor:
    """Return which of the masks [N, SIZE, SIZE] are True somewhere [N]."""
    return places.any(2).any(1)


def move_sideways(action: Tensor, x: Tensor) -> Tensor:
    """Return places [N] in the bottom row after actions [N]: 1 moves to the left, 2 to the right."""
    move = (action == 2).long() - (action == 1).long()
    return (x + move).clamp(0, BOTTOM)


def sticky_action(
    action: Tensor,
    last: Tensor,
    chance: float,
    draw: DeviceGenerator,
) -> Tensor:
    """Return actions [N]; each is replaced by the row's last one with a probability of `chance`.

    Machado et al., 2018, arXiv:1709.06009, section 5.2.
    """
    return torch.where(draw.random((len(action),)) < chance, last, action)


def colors(channels: Tensor) -> Array:
    """Return a picture [H, W, 3] uint8 of channels [SIZE, SIZE, C]: a color for each, the last one on top."""
    cells = to_host(channels)
    picture = np.zeros((SIZE, SIZE, 3), np.uint8)
    count = cells.shape[2]
    for channel in range(count):
        color = colorsys.hsv_to_rgb(channel / count, 0.6, 0.9)
        picture[cells[:, :, channel]] = np.rint(np.multiply(color, 255)).astype(np.uint8)
    return picture.repeat(PIXELS, 0).repeat(PIXELS, 1)
