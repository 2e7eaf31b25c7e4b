"""Agents that act by an exported program, and the little that they need to know of their environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.export.flat import leaves
from rlplug_core.export.program import Program
from rlplug_core.export.spaces import meant
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, Spec, State, Timestep


class ProgramAgent:
    """Acts by a program; a row that opens an episode begins without memory."""

    def __init__(self, program: Program, memory: Mapping[str, int]) -> None:
        self.program = program
        self.memory = memory

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> RecurrentState:
        return {
            part: np.zeros((num_envs, width), np.float32) for part, width in self.memory.items()
        } or None

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        """The best action for each observation [N, ...]; it never explores."""
        given = leaves(obs)
        if self.memory:
            given |= {
                "first": is_first,
                **{f"memory.{part}": value for part, value in recurrent_state.items()},
            }
        tensors = {
            name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in given.items()
        }
        action, *after = self.program(tensors)
        kept = {part: value.numpy() for part, value in zip(self.memory, after, strict=True)} or None
        return Act(action.numpy(), kept, NO_EXTRAS)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Holds nothing."""


class Absent:
    """An environment that cannot be stepped: its spaces, and what actions mean in it."""

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
        """Holds nothing."""

    def translate(self, action: Array) -> object:
        return meant(self.action_space, action)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Holds nothing."""
