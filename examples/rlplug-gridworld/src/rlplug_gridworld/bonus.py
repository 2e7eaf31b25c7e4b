"""`VisitBonus`: a reward for visiting new places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from rlplug_core.config.options import Config, NonNegative
from rlplug_core.errors import UsageError
from rlplug_core.plugins.transform import Transform, with_reward
from rlplug_core.protocols import Env
from rlplug_core.types import Array, State, Timestep


@dataclass(frozen=True)
class VisitBonusConfig(Config):
    scale: NonNegative = 0.5  # bonus of the first visit of a cell


class VisitBonus(Transform):
    """A bonus of scale / √n for the n-th visit of a cell (Strehl and Littman, 2008).

    Cells are one-hot observations. Visits are counted over all rows and episodes; rows that enter the same cell in the
    same step count one after the other. Reported returns do not contain the bonus.
    """

    Config = VisitBonusConfig

    def __init__(self, env: Env, config: VisitBonusConfig) -> None:
        super().__init__(env)
        if not isinstance(env.spec.obs, spaces.Box) or len(env.spec.obs.shape) != 1:
            raise UsageError(
                f"visit-bonus counts cells, but observations of {env.spec.id} are not one-hot vectors"
            )
        self.scale = config.scale
        self.visits = np.zeros(env.spec.obs.shape[0], np.int64)
        self.frozen = False

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        cells = now.final_obs.argmax(1)[now.valid]
        order = np.argsort(cells, kind="stable")
        ordered = cells[order]
        # Position of each row among the rows that enter the same cell in this step.
        position = np.arange(len(cells)) - np.searchsorted(ordered, ordered)
        count = np.empty(len(cells), np.int64)
        count[order] = self.visits[ordered] + position + 1
        if not self.frozen:
            self.visits += np.bincount(cells, minlength=len(self.visits))
        reward = now.reward.copy()
        reward[now.valid] += self.scale / np.sqrt(count)
        return with_reward(now, reward)

    def learned(self) -> State:
        return super().learned() | {"visits": self.visits.copy()}

    def freeze(self, state: State) -> None:
        super().freeze(state)
        self.visits = np.array(state["visits"])
        self.frozen = True

    def state_dict(self) -> State:
        return super().state_dict() | {"visits": self.visits.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.visits = np.array(state["visits"])
