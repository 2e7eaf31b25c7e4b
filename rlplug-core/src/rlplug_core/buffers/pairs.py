"""`PairBuffer`: one step at a time, with the action that followed it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.types import State, Step, tree_map


class PairBuffer(RolloutBuffer):
    """Delays every step until the next action is known: `extras["next_action"]` [1, N].

    It is -1 if no action followed. At the end of an episode it is the first action of the next one, which
    losses ignore.
    """

    #: It stores arrays.
    takes_tensors = False

    def __init__(self) -> None:
        super().__init__(steps=1)
        self.held: Step | None = None

    def add(self, step: Step, source: int = 0) -> None:
        if self.held is not None:
            super().add(
                replace(self.held, extras={"next_action": np.where(step.valid, step.action, -1)})
            )
        self.held = Step(**{**tree_map(np.copy, _parts(step)), "ended": step.ended})

    def restart(self) -> None:
        """Mark the delayed steps as truncated, because no known action follows them."""
        super().restart()
        if self.held is not None:
            self.held = replace(self.held, truncated=~self.held.terminated, ended=True)

    def state_dict(self) -> State:
        return {**super().state_dict(), "held": None if self.held is None else _parts(self.held)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.held = None if state["held"] is None else Step(**state["held"])


def _parts(step: Step) -> State:
    return {field.name: getattr(step, field.name) for field in fields(step)}
