"""`BehaviorAgent`: a policy that stores its distribution with each step, for off-policy corrections."""

from __future__ import annotations

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.types import Act, Array, RecurrentState


class BehaviorAgent(PolicyAgent):
    """A policy agent that adds the outputs [N, size] of its head to the extras of each step, as `outputs`."""

    def choose(self, outputs: Array, recurrent_state: RecurrentState, explore: bool) -> Act:
        act = super().choose(outputs, recurrent_state, explore)
        silent = not explore or self.draws is None
        return (
            act if silent else Act(act.action, recurrent_state, {**act.extras, "outputs": outputs})
        )
