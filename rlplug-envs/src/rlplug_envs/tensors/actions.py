"""Convert canonical actions, as tensors, to those of an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from gymnasium import spaces
from torch import Tensor

from rlplug_core.arrays import DTYPES
from rlplug_core.errors import BadEnv
from rlplug_core.nets.actions import scale_and_shift
from rlplug_core.types import Obs, Space

ToEnv: TypeAlias = Callable[[Obs], Tensor]


def to_tensor_actions(space: Space, device: torch.device, id: str) -> ToEnv:
    """Return a function from canonical actions [N, ...] to those of a space, on a device.

    Raises:
        BadEnv: the space has no such function.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda action: action + start) if start else (lambda action: action)
    if isinstance(space, spaces.MultiDiscrete):
        offset = torch.as_tensor(space.start, device=device)
        return lambda action: action + offset
    if isinstance(space, spaces.MultiBinary):
        return lambda action: action.to(torch.int8)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return _rescaling(space, device)
    raise BadEnv(
        f"{id}: actions of type {type(space).__name__} cannot be tensors; let the environment take Discrete, "
        "MultiDiscrete, MultiBinary or floating-point Box actions"
    )


def _rescaling(space: spaces.Box, device: torch.device) -> ToEnv:
    """Return a function that scales actions if both bounds are finite, and always clips them."""
    _, *factors = scale_and_shift(space)
    dtype = DTYPES[space.dtype]
    scale, shift, low, high = (
        torch.as_tensor(array, dtype=dtype, device=device)
        for array in (*factors, space.low, space.high)
    )

    def to_env(action: Tensor) -> Tensor:
        return torch.addcmul(shift, action.to(dtype), scale).clamp(low, high)

    return to_env
