"""`BehaviorAgent`: a policy that sends along the distribution from which it chose, for off-policy corrections."""

from __future__ import annotations

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.clock import Clock
from rlplug_core.types import Act, Array, Obs, RecurrentState


class BehaviorAgent(PolicyAgent):
    """A policy agent that sends along the outputs [N, size] of the head from which it chose, as `outputs`."""

    def act(
        self, obs: Obs, is_first: Array, recurrent_state: RecurrentState, clock: Clock, explore: bool = True
    ) -> Act:
        outputs = self.forward(obs)
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs))
        return Act(self.head.sample(outputs, self.draws.next()), None, {"outputs": outputs})
