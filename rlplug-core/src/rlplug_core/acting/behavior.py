"""`BehaviorAgent`: a policy that sends along the distribution from which it chose, for off-policy corrections."""

from __future__ import annotations

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.types import Act, Array, RecurrentState


class BehaviorAgent(PolicyAgent):
    """A policy agent that sends along the outputs [N, size] of the head from which it chose, as `outputs`."""

    def choose(self, outputs: Array, recurrent_state: RecurrentState, explore: bool) -> Act:
        act = super().choose(outputs, recurrent_state, explore)
        silent = not explore or self.draws is None
        return (
            act if silent else Act(act.action, recurrent_state, {**act.extras, "outputs": outputs})
        )
