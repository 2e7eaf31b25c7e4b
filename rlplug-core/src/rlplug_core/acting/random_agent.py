"""An agent with random actions, to measure baseline returns and the speed of an environment."""

from __future__ import annotations

from copy import deepcopy

from rlplug_core.clock import Clock
from rlplug_core.nets.actions import dtype_of, sample, sample_legal
from rlplug_core.seeds import Seeds
from rlplug_core.types import MASK, Act, Array, Obs, RecurrentState, Space, State


class RandomAgent:
    """Draws actions uniformly from a space, or from the legal ones if the observation has an action mask."""

    def __init__(self, space: Space, seeds: Seeds) -> None:
        self.space: Space = deepcopy(space)  # a space draws with its own generator
        self.space.seed(seeds.integer())

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> RecurrentState:
        return None

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        masked = isinstance(obs, dict) and MASK in obs
        drawn = sample_legal(self.space, obs[MASK]) if masked else sample(self.space, len(is_first))
        return Act(drawn.astype(dtype_of(self.space)))

    def state_dict(self) -> State:
        """Return nothing: no result depends on its next actions."""
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
