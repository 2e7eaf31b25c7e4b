"""The agent that runs an exported program, and a substitute for the environment with its spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlplug_core.batches import rows_of
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.export.flat import leaves, shape_of
from rlplug_core.export.program import Program
from rlplug_core.export.spaces import to_env_action
from rlplug_core.nets.many_agents import check_whole_worlds
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, Spec, State, Timestep


class ProgramAgent:
    """Acts with an exported program; recurrent state is zero at the start of an episode.

    With `agents` above 1 each agent of a world has its own network, and rows are those of whole worlds.
    """

    def __init__(
        self,
        program: Program,
        memory: Mapping[str, int | list[int]],
        agents: int = 1,
    ) -> None:
        self.program = program
        self.memory = memory
        self.agents = agents

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> RecurrentState:
        zeros = {
            part: np.zeros((num_envs, *shape_of(width)), np.float32)
            for part, width in self.memory.items()
        }
        return zeros or None

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        """Return the greedy action for each observation [N, ...]; `explore` has no effect."""
        check_whole_worlds(rows_of(obs), self.agents)
        arrays = leaves(obs)
        if self.memory:
            arrays["first"] = is_first
            for part, value in recurrent_state.items():
                arrays[f"memory.{part}"] = value
        inputs = {
            name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()
        }
        action, *after = self.program(inputs)
        state = {part: value.numpy() for part, value in zip(self.memory, after, strict=True)}
        return Act(action.numpy(), state or None, NO_EXTRAS)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing; it has no state."""


class DetachedEnv:
    """The spaces of an environment and the conversion of actions, without the environment; it cannot be stepped."""

    def __init__(self, spec: Spec, action_space: Any) -> None:
        self.spec = spec
        self.action_space = action_space

    def reset(self, seed: int) -> Timestep:
        raise UsageError(
            f"an exported policy has no environment; make {self.spec.id} yourself and ask the policy"
        )

    def step(self, action: Array) -> Timestep:
        return self.reset(0)

    def close(self) -> None:
        """Do nothing; it has no resources."""

    def translate(self, action: Array) -> object:
        return to_env_action(self.action_space, action)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing; it has no state."""
