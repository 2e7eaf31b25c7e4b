"""Controllers: what reacts to evaluation results; stateful, saved, able to set only `clock.scale` and `clock.stop`."""

from __future__ import annotations

from rlplug_core.clock import Clock
from rlplug_core.types import State


class TargetReturn:
    """Stops the run at the first evaluation whose mean return reaches `target`."""

    def __init__(self, target: float) -> None:
        self.target = target

    def evaluated(self, mean_return: float, clock: Clock) -> None:
        if mean_return >= self.target:
            clock.stop = True

    def state_dict(self) -> State:
        return {"target": self.target}

    def load_state_dict(self, state: State) -> None:
        self.target = state["target"]
