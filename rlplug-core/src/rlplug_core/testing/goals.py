"""A small numpy environment with goals and known answers, like those of `rlplug_core.testing.envs`."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, Goals, Obs


class Bits(Vector):
    """Flip eight bits to match a goal, one per step: reward 0 for the step that reaches it, -1 for every other step.

    Reaching the goal terminates; an episode is truncated after eight steps. The best return is 1 minus the number of
    wrong bits. Random actions hardly ever reach a random goal (Andrychowicz et al., 2017, section 3.1).
    """

    bits: ClassVar[int] = 8
    obs = spaces.Dict(
        dict.fromkeys(("achieved_goal", "desired_goal", "observation"), spaces.Box(0, 1, (bits,)))
    )
    action = spaces.Discrete(bits)

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = replace(self.spec, goals=Goals(reward, reached))

    def open(self, rows: Array) -> None:
        for name in ("bits", "goal"):
            self.set_rows(name, rows, self.generator.integers(0, 2, (self.num_envs, self.bits)))

    def observe(self) -> Obs:
        bits, goal = (self.state[name].astype(np.float32) for name in ("bits", "goal"))
        return {"achieved_goal": bits, "desired_goal": goal, "observation": bits.copy()}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        bits = self.state["bits"]
        goal = self.state["goal"]
        bits[np.arange(self.num_envs), action] ^= 1
        return (
            reward(bits, goal).astype(np.float64),
            reached(bits, goal),
            self.state["length"] + 1 >= self.bits,
        )


def reached(achieved: Array, desired: Array) -> Array:
    """Return a mask [B] of the reached goals [B, n]."""
    return (achieved == desired).all(-1)


def reward(achieved: Array, desired: Array) -> Array:
    """Return 0 for each reached goal [B, n] and -1 for the others."""
    return reached(achieved, desired).astype(np.float32) - 1
