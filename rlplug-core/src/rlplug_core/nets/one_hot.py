"""Discrete and MultiDiscrete observations: one-hot vectors, and checks of their numbers."""

from __future__ import annotations

from typing import TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.errors import plain
from rlplug_core.types import Array, Space

#: Spaces of observations that become one-hot, and all spaces of whole numbers with bounds.
Counted: TypeAlias = spaces.Discrete | spaces.MultiDiscrete
Ranged: TypeAlias = Counted | spaces.MultiBinary


class OneHot(nn.Module):
    """Discrete or MultiDiscrete observations [B, ...] as one-hot vectors, concatenated to [B, F].

    The next layer's weights are their embedding.
    """

    offset: Tensor

    def __init__(self, space: Counted) -> None:
        super().__init__()
        sizes = np.reshape(
            space.n if isinstance(space, spaces.Discrete) else space.nvec, -1
        ).astype(np.int64)
        self.features = int(sizes.sum())
        self.first = np.cumsum(sizes) - sizes - np.reshape(space.start, -1)
        self.register_buffer("offset", torch.from_numpy(self.first), persistent=False)

    @overridable
    def forward(self, obs: Tensor) -> Tensor:
        columns = obs.reshape(obs.shape[0], -1).long() + self.offset
        return torch.zeros(columns.shape[0], self.features, device=obs.device).scatter_(
            1, columns, 1.0
        )

    def on_host(self, obs: Array) -> Array:
        """Return the result of `forward` for an array."""
        columns = obs.reshape(len(obs), -1).astype(np.int64) + self.first
        vectors = np.zeros((len(obs), self.features), np.float32)
        np.put_along_axis(vectors, columns, 1.0, 1)
        return vectors


def bounds(space: Ranged) -> tuple[Array, Array]:
    """Return the least and the largest number at each place of an observation, with the space's type."""
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype), np.ones(space.shape, space.dtype)
    low = np.asarray(space.start, np.int64)
    high = low + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
    return low.astype(space.dtype), np.asarray(high, space.dtype)


def outlier(space: Ranged, obs: Array) -> tuple[int, str] | None:
    """Return the first row of observations [B, ...] outside their space, and a description; None if all are inside."""
    low, high = bounds(space)
    outside = (obs < low) | (obs > high)
    if not outside.any():
        return None
    row, *place = np.argwhere(outside)[0].tolist()
    at = tuple(place)
    verb, place_text = ("holds", " there") if at else ("is", "")
    return (
        row,
        f"{verb} {obs[(row, *at)]}, and {plain(str(space), 60)} has {low[at]} to {high[at]}{place_text}",
    )


def first_altered(space: Space, obs: Array) -> tuple[int, str] | None:
    """Return the first row of observations [B, ...] that a cast to their space's integers changes, and a description.

    None if the cast changes nothing, as for float images with whole pixel values.
    """
    dtype = np.dtype(space.dtype)
    if dtype.kind not in "iu" or obs.dtype == dtype:
        return None
    with np.errstate(invalid="ignore"):  # NumPy warns if a number is infinite or too large
        altered = obs.astype(dtype) != obs
    if not altered.any():
        return None
    place = tuple(np.argwhere(altered)[0].tolist())
    return place[0], f"holds {obs[place]}, and {plain(str(space), 60)} has numbers of type {dtype}"
