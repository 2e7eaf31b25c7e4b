"""CartPole in torch: Gymnasium's `CartPole-v1` (Barto, Sutton and Anderson, 1983), N rows at a time."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.plugins.tensor_world import Moved, Rows, TensorWorld
from rlplug_core.types import Array
from rlplug_envs.tensors.pictures import picture

GRAVITY = 9.8
MASS_OF_POLE = 0.1
MASS = 1.0 + MASS_OF_POLE
#: Half the length of the pole.
LENGTH = 0.5
FORCE = 10.0
#: Seconds of a step.
TAU = 0.02
#: The largest position and angle of an episode.
BOUNDS = (2.4, 12 * 2 * math.pi / 360)
HIGH = np.array([2 * BOUNDS[0], np.inf, 2 * BOUNDS[1], np.inf], dtype=np.float32)


class CartPole(TensorWorld):
    """A pole on a cart; the state is position, velocity, angle and angular velocity."""

    single_observation_space = Box(-HIGH, HIGH)
    single_action_space = Discrete(2)
    time_limit = 500

    def start(self, draw: DeviceGenerator) -> Rows:
        return {"state": draw.random((self.num_envs, 4)).mul_(0.1).sub_(0.05)}

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        x, speed, angle, turning = rows["state"].unbind(1)
        force = (2 * action - 1) * FORCE
        cosine = angle.cos()
        sine = angle.sin()
        pushed = (force + MASS_OF_POLE * LENGTH * turning.square() * sine) / MASS
        swing = (GRAVITY * sine - cosine * pushed) / (
            LENGTH * (4.0 / 3.0 - MASS_OF_POLE * cosine.square() / MASS)
        )
        acceleration = pushed - MASS_OF_POLE * LENGTH * swing * cosine / MASS
        derivative = torch.stack([speed, acceleration, turning, swing], 1)
        state = torch.add(rows["state"], derivative, alpha=TAU)
        terminated = (state[:, 0].abs() > BOUNDS[0]) | (state[:, 2].abs() > BOUNDS[1])
        return {"state": state}, torch.ones_like(x), terminated

    def observe(self, rows: Rows) -> Tensor:
        return rows["state"]

    def render(self, row: int = 0) -> Array:
        return picture("CartPole-v1", self.rows["state"][row])
