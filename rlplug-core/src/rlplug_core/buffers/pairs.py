"""`PairBuffer`: one step at a time, with the action that followed it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.types import State, Step, tree_map


class PairBuffer(RolloutBuffer):
    """Delays every step until the next action is known: `extras["next_action"]` [1, N].

    It is -1 if no action followed. At the end of an episode it is the first action of the next episode, which losses
    must not use.
    """

    #: Steps must have arrays.
    takes_tensors = False

    def __init__(self) -> None:
        super().__init__(steps=1)
        #: The last step, which waits for the next action.
        self.delayed: Step | None = None

    def add(self, step: Step, source: int = 0) -> None:
        if self.delayed is not None:
            super().add(
                replace(self.delayed, extras={"next_action": np.where(step.valid, step.action, -1)})
            )
        self.delayed = Step(**{**tree_map(np.copy, _parts(step)), "ended": step.ended})

    def restart(self) -> None:
        """Mark the delayed steps as truncated, because no known action follows them."""
        super().restart()
        if self.delayed is not None:
            self.delayed = replace(self.delayed, truncated=~self.delayed.terminated, ended=True)

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "held": None if self.delayed is None else _parts(self.delayed),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.delayed = None if state["held"] is None else Step(**state["held"])


def _parts(step: Step) -> State:
    """Return the fields of a step by name."""
    return {field.name: getattr(step, field.name) for field in fields(step)}
