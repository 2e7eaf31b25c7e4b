"""MountainCar in torch: Gymnasium's `MountainCar-v0` (Moore, 1990), N rows at a time."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.pictures import picture

LEFT = -1.2
RIGHT = 0.6
GOAL = 0.5
MAX_SPEED = 0.07
FORCE = 0.001
GRAVITY = 0.0025


class MountainCar(TensorWorld):
    """A car too weak for its hill; the state is position and velocity."""

    single_observation_space = Box(
        np.array([LEFT, -MAX_SPEED], np.float32), np.array([RIGHT, MAX_SPEED], np.float32)
    )
    single_action_space = Discrete(3)
    time_limit = 200

    def start(self, draw: DeviceGenerator) -> Rows:
        position = 0.2 * draw.random((self.num_envs, 1)) - 0.6
        return {"state": torch.cat([position, torch.zeros_like(position)], 1)}

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        position, speed = rows["state"].unbind(1)
        speed = speed + (action - 1) * FORCE - (3 * position).cos() * GRAVITY
        speed = speed.clamp(-MAX_SPEED, MAX_SPEED)
        position = (position + speed).clamp(LEFT, RIGHT)
        speed = torch.where(position <= LEFT, speed.clamp(min=0), speed)
        terminated = (position >= GOAL) & (speed >= 0)
        return {"state": torch.stack([position, speed], 1)}, -torch.ones_like(position), terminated

    def observe(self, rows: Rows) -> Tensor:
        return rows["state"]

    def render(self, row: int = 0) -> Array:
        return picture("MountainCar-v0", self.rows["state"][row])
