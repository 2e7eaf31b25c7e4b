"""`EpisodicLife`: the loss of a life ends an episode for the learner only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlplug_core.arrays import check_shape
from rlplug_core.config.options import Config
from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.types import Array, State, Timestep, tree_map


class EpisodicLife(Transform):
    """A lost life terminates an episode (Mnih et al., 2015), while the game continues; only in training.

    Returns and lengths stay those of whole games. `info["lives"]` is the number of lives.
    """

    def __init__(self, env: Env, config: Config | None = None) -> None:
        super().__init__(env)
        self._read_info = complete(env).info
        # 0: unknown until the first step of a game.
        self._lives = np.zeros(env.spec.num_envs, np.int64)

    @staticmethod
    def in_evaluation(config: object) -> None:
        """Leave it out: evaluations play whole games."""

    def reset(self, seed: int) -> Timestep:
        self._lives[:] = 0
        return self.env.reset(seed)

    def step(self, action: Array) -> Timestep:
        timestep = self.env.step(action)
        values = self._read_info("lives")
        # Lists, because numpy takes longer for small arrays.
        if values == self._lives.tolist() and not np.count_nonzero(timestep.is_first):
            return timestep
        lives = self._numbers(values, timestep.valid & ~timestep.is_first)
        lost = (
            (lives < self._lives)
            & (lives > 0)
            & ~(timestep.is_first | timestep.terminated | timestep.truncated)
        )
        self._lives = np.where(timestep.is_first, 0, lives)
        if not lost.any():
            return timestep
        final = (
            tree_map(np.copy, timestep.obs)
            if timestep.final_obs is timestep.obs
            else timestep.final_obs
        )
        terminated = timestep.terminated | lost
        is_first = timestep.is_first | lost
        return replace(
            timestep, final_obs=final, terminated=terminated, is_first=is_first, ended=True
        )

    def _numbers(self, values: list[Any], running: Array) -> Array:
        """Return the lives of each row; 0 if a row that is not `running` has none in its info, as after a reset."""
        if any(
            lives is None and runs for lives, runs in zip(values, running.tolist(), strict=True)
        ):
            raise UsageError(f"episodic-life: {self.spec.id} has no info['lives']; leave it out")
        return np.array([lives or 0 for lives in values], np.int64)

    def state_dict(self) -> State:
        return super().state_dict() | {"lives": self._lives.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._lives = check_shape(np.array(state["lives"]), self._lives)
