"""Pictures of single rows, drawn on the host by Gymnasium's own environments."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.types import Array


@cache
def _picture_env(id: str) -> Any:
    env: Any = gymnasium.make(id, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    return env


def picture(id: str, state: Tensor, **attributes: object) -> Array:
    """Return the picture [H, W, 3] uint8 that Gymnasium's environment `id` draws of a state.

    Args:
        state: the values of its attribute `state`.
        attributes: other attributes that it draws.
    """
    env = _picture_env(id)
    env.state = to_host(state)
    for name, value in attributes.items():
        setattr(env, name, value)
    return env.render()
