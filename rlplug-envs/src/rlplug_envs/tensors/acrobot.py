"""Acrobot in torch: Gymnasium's `Acrobot-v1` (Sutton, 1996; equations of Sutton and Barto), N rows at a time."""

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
#: The center of mass of a link; its length, mass and moment of inertia are 1.
CENTER = 0.5
#: Seconds of a step.
TAU = 0.2
#: The largest angular velocities.
MAX_SPEEDS = (4 * math.pi, 9 * math.pi)
HIGH = np.array([1, 1, 1, 1, *MAX_SPEEDS], dtype=np.float32)


class Acrobot(TensorWorld):
    """Two links that have to swing above a line; the state is two angles and their velocities."""

    single_observation_space = Box(-HIGH, HIGH)
    single_action_space = Discrete(3)
    time_limit = 500

    def start(self, draw: DeviceGenerator) -> Rows:
        return {"state": 0.2 * draw.random((self.num_envs, 4)) - 0.1}

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        torque = (action - 1).float()
        state = runge_kutta(rows["state"], torque)
        angle1, angle2, speed1, speed2 = state.unbind(1)
        angle1, angle2 = (
            torch.remainder(angle + math.pi, 2 * math.pi) - math.pi for angle in (angle1, angle2)
        )
        speed1 = speed1.clamp(-MAX_SPEEDS[0], MAX_SPEEDS[0])
        speed2 = speed2.clamp(-MAX_SPEEDS[1], MAX_SPEEDS[1])
        terminated = -angle1.cos() - (angle1 + angle2).cos() > 1
        return (
            {"state": torch.stack([angle1, angle2, speed1, speed2], 1)},
            -(~terminated).float(),
            terminated,
        )

    def observe(self, rows: Rows) -> Tensor:
        angle1, angle2, speed1, speed2 = rows["state"].unbind(1)
        return torch.stack(
            [angle1.cos(), angle1.sin(), angle2.cos(), angle2.sin(), speed1, speed2], 1
        )

    def render(self, row: int = 0) -> Array:
        return picture("Acrobot-v1", self.rows["state"][row])


def runge_kutta(state: Tensor, torque: Tensor) -> Tensor:
    """Integrate `derivative` over a step, to the fourth order."""
    first = derivative(state, torque)
    second = derivative(state + TAU / 2 * first, torque)
    third = derivative(state + TAU / 2 * second, torque)
    fourth = derivative(state + TAU * third, torque)
    return state + TAU / 6 * (first + 2 * second + 2 * third + fourth)


def derivative(state: Tensor, torque: Tensor) -> Tensor:
    """Return the velocities and accelerations [N, 4] of states [N, 4]."""
    angle1, angle2, speed1, speed2 = state.unbind(1)
    cosine = angle2.cos()
    pull = CENTER * angle2.sin()
    d1 = 2 * CENTER**2 + 1 + 2 * CENTER * cosine + 2
    d2 = CENTER**2 + CENTER * cosine + 1
    phi2 = CENTER * GRAVITY * (angle1 + angle2).sin()
    phi1 = -pull * speed2.square() - 2 * pull * speed2 * speed1
    phi1 = phi1 + (CENTER + 1) * GRAVITY * angle1.sin() + phi2
    second = torque + d2 / d1 * phi1 - pull * speed1.square() - phi2
    second = second / (CENTER**2 + 1 - d2.square() / d1)
    return torch.stack([speed1, speed2, -(d2 * second + phi1) / d1, second], 1)
