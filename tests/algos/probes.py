"""An environment that tells a rollout's true successors from the observations that open the next episodes."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array


class Late(Vector):
    """Nothing for five steps, then a reward of 1 for ever, cut after ten steps.

    Seen is min(age, 5) as one-hot; its value is γ^(5 - seen) / (1 - γ), but only if a truncation bootstraps from what
    was seen last and not from the beginning of the next episode.
    """

    obs = spaces.Box(0, 1, (6,), np.float32)

    def observe(self) -> Array:
        return np.eye(6, dtype=np.float32)[np.minimum(self.state["length"], 5)]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        late = self.state["length"] >= 5
        return late.astype(np.float64), np.zeros(self.rows, np.bool_), self.state["length"] + 1 >= 10
