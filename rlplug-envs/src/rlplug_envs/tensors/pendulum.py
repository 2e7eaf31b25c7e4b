"""Pendulum in torch: Gymnasium's `Pendulum-v1`, N rows at a time."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.pictures import picture

GRAVITY = 10.0
#: Seconds of a step.
TAU = 0.05
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
HIGH = np.array([1, 1, MAX_SPEED], dtype=np.float32)


class Pendulum(TensorWorld):
    """A pendulum that has to be swung up and held; the state is angle, 0 upright, and angular velocity."""

    single_observation_space = Box(-HIGH, HIGH)
    single_action_space = Box(-MAX_TORQUE, MAX_TORQUE, (1,))
    time_limit = 200

    def start(self, draw: DeviceGenerator) -> Rows:
        highest = torch.tensor([math.pi, 1.0], device=self.device)
        return {"state": (2 * draw.random((self.num_envs, 2)) - 1) * highest}

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        angle, speed = rows["state"].unbind(1)
        torque = action[:, 0]
        angle_error = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = angle_error.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = speed + (1.5 * GRAVITY * angle.sin() + 3 * torque) * TAU
        speed = speed.clamp(-MAX_SPEED, MAX_SPEED)
        state = torch.stack([angle + speed * TAU, speed], 1)
        return {"state": state}, -cost, torch.zeros_like(cost, dtype=torch.bool)

    def observe(self, rows: Rows) -> Tensor:
        angle, speed = rows["state"].unbind(1)
        return torch.stack([angle.cos(), angle.sin(), speed], 1)

    def render(self, row: int = 0) -> Array:
        return picture("Pendulum-v1", self.rows["state"][row], last_u=None)
