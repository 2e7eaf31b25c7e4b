"""Online SARSA with a network (Rummery and Niranjan, 1994): learns from the action that it takes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from rlplug_algos.action_values import CHOICE, TARGET
from rlplug_algos.vqn import VQN, VQNConfig, only
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.exploration import of_action
from rlplug_core.types import Array, State, Step, tree_map


@dataclass(frozen=True)
class VSarsaConfig(VQNConfig):
    """Options of VSarsa: those of VQN."""


class PairBuffer(RolloutBuffer):
    """Holds every step back until the next one says which action followed: `extras["next_action"]` [1, N].

    It is -1 where none did; behind the end of an episode it is the next one's first, and means nothing.
    """

    def __init__(self) -> None:
        super().__init__(steps=1)
        self.held: Step | None = None

    def add(self, step: Step, source: int = 0) -> None:
        if self.held is not None:
            super().add(replace(self.held, extras={"next_action": np.where(step.valid, step.action, -1)}))
        self.held = Step(**{name: _copy(part) for name, part in _parts(step).items()})

    def restart(self) -> None:
        """What is held is followed by no action of ours: its episodes are cut."""
        super().restart()
        if self.held is not None:
            self.held = replace(self.held, truncated=~self.held.terminated, ended=True)

    def state_dict(self) -> State:
        return {**super().state_dict(), "held": None if self.held is None else _parts(self.held)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.held = None if state["held"] is None else Step(**state["held"])


class VSarsa(VQN):
    """VQN with the values of the policy that explores: a smaller epsilon makes them those of a better one."""

    Config = VSarsaConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: VSarsaConfig
    uses = 3

    def build(self) -> None:
        super().build()
        self.explorer = self.agent(self.context.rank)

    def buffer(self) -> PairBuffer:
        return PairBuffer()

    def targets(self, batch: Rollout, clock: Clock, noise: Sequence[Array] = ()) -> Array:
        """r + gamma Q(s', a') for the action a' that was taken; where a cut kept it from being, the expected value."""
        obs, following = tree_map(lambda array: array[-1], batch.obs), batch.extras["next_action"][-1]
        values = self.values(obs, *only(noise, TARGET))
        by = self.values(obs, *only(noise, CHOICE)) if noise else values
        taken, expected = of_action(values, following), self.explorer.expected(values, by, clock)
        successor = np.where(batch.truncated | (following < 0), expected, taken)
        target: Array = batch.reward + self.config.gamma * successor * ~batch.terminated
        return target.astype(np.float32)


def _parts(step: Step) -> State:
    return {field.name: getattr(step, field.name) for field in fields(step)}


def _copy(part: Any) -> Any:
    return part if isinstance(part, bool) else tree_map(np.copy, part)
