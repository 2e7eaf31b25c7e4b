"""Spaces of images, and the scale of small integers in observations."""

from __future__ import annotations

from typing import Any, TypeGuard

import gymnasium.spaces as spaces
import numpy as np
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.types import Array, Space


def is_image(space: Space) -> TypeGuard[spaces.Box[Any]]:
    """Return whether observations have three dimensions, two of them of at least 8 pixels."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and min(sorted(space.shape)[1:]) >= 8
    )


def has_images(space: Space) -> bool:
    """Return whether a part of the observation is an image."""
    if isinstance(space, spaces.Dict):
        return any(map(has_images, space.spaces.values()))
    return is_image(space)


def number_scale(space: Space) -> float:
    """Return the factor that scales bytes and other small integers to [-1, 1] by their bounds; 1 for other spaces.

    Integers up to 10 are small enough, and small grids of three dimensions contain codes, not amounts.
    """
    if (
        not isinstance(space, spaces.Box)
        or space.dtype.kind not in "iu"
        or space.dtype.itemsize > 2
    ):
        return 1.0
    bound = max(float(space.high.max(initial=0)), -float(space.low.min(initial=0)))
    if is_image(space):
        return 1 / max(bound, 1.0) if space.dtype == np.uint8 else 1.0
    return 1 / bound if len(space.shape) < 3 and bound > 10 else 1.0


def scaled_parts(space: Space) -> list[str]:
    """Return the names of the parts of a space that networks divide by their bound; "" for the whole space."""
    if isinstance(space, spaces.Dict):
        return [
            f"{name}/{part}".rstrip("/")
            for name, inner in space.spaces.items()
            for part in scaled_parts(inner)
        ]
    return [""] if number_scale(space) != 1 and not has_images(space) else []


class Scaled(nn.Module):
    """Any array of integers as a float vector [B, F], times `scale`."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    @overridable
    def forward(self, obs: Tensor) -> Tensor:
        return obs.reshape(obs.shape[0], -1).float() * self.scale

    def on_host(self, obs: Array) -> Array:
        """Return the result of `forward` for an array."""
        return np.multiply(obs.reshape(len(obs), -1), self.scale, dtype=np.float32)
