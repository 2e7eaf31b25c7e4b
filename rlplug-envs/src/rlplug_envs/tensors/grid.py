"""Functions for games on a grid: masks of places, sticky actions, pictures."""

from __future__ import annotations

import colorsys

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator, to_host
from rlplug_core.types import Array

#: The height and width of the grid.
SIZE = 10
#: The pixels of a cell in pictures.
PIXELS = 16


def one_hot(y: Tensor, x: Tensor) -> Tensor:
    """Return masks [N, SIZE, SIZE] that are True at the places `y, x` [N]; nowhere for places outside."""
    numbers = torch.arange(SIZE, device=y.device)
    return (y.unsqueeze(1) == numbers).unsqueeze(2) & (x.unsqueeze(1) == numbers).unsqueeze(1)


def move_aside(action: Tensor, place: Tensor) -> Tensor:
    """Return places [N] in the bottom row after actions [N]: 1 moves to the left, 2 to the right."""
    move = (action == 2).long() - (action == 1).long()
    return (place + move).clamp(0, SIZE - 1)


def sticky_action(action: Tensor, last: Tensor, chance: float, draw: DeviceGenerator) -> Tensor:
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
