"""An agent with random actions, to measure baseline returns and the speed of an environment."""

from __future__ import annotations

from copy import deepcopy

import torch

from rlplug_core.arrays import to_device, to_host
from rlplug_core.clock import Clock
from rlplug_core.nets.actions import dtype_of, sample, sample_legal
from rlplug_core.seeds import Seeds
from rlplug_core.types import MASK, Act, Array, Obs, RecurrentState, Space, State


class RandomAgent:
    """Draws actions uniformly from a space, or from the legal ones if the observation has an action mask."""

    def __init__(self, space: Space, seeds: Seeds) -> None:
        self.space: Space = deepcopy(space)  # a space draws with its own generator
        self.space.seed(seeds.integer())
        self.device: torch.device | None = None

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> RecurrentState:
        self.device = None
        return None

    def use_tensors(self, num_envs: int, device: torch.device) -> None:
        """Return actions as tensors on a device, until the next call of `initial`; they are drawn on the host."""
        self.device = device

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        masked = isinstance(obs, dict) and MASK in obs
        drawn = (
            sample_legal(self.space, to_host(obs[MASK]))
            if masked
            else sample(self.space, len(is_first))
        )
        action = drawn.astype(dtype_of(self.space))
        return Act(action if self.device is None else to_device(action, self.device))

    def state_dict(self) -> State:
        """Return nothing: no result depends on its next actions."""
        return {}

    def load_state_dict(self, state: State) -> None:
        pass
