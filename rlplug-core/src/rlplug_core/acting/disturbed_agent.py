"""An agent that sometimes replaces another agent's action by a random one, for evaluations under disturbance."""

from __future__ import annotations

import numpy as np

from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.clock import Clock
from rlplug_core.protocols import Agent
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Obs, RecurrentState, Spec, State, align_mask


class DisturbedAgent:
    """Acts as `agent`, but with probability `epsilon` takes a uniformly random action, legal if there is a mask."""

    def __init__(
        self,
        agent: Agent,
        spec: Spec,
        epsilon: float,
        seeds: Seeds,
    ) -> None:
        self.agent = agent
        self.epsilon = epsilon
        self.generator = seeds.child("deviating").generator()
        self.random = RandomAgent(spec.action, seeds.child("actions"))

    def weights(self) -> State:
        return self.agent.weights()

    def initial(self, num_envs: int) -> RecurrentState:
        return self.agent.initial(num_envs)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        act = self.agent.act(obs, is_first, recurrent_state, clock, explore)
        deviates = self.generator.random(len(act.action)) < self.epsilon
        if not deviates.any():
            return act
        drawn = self.random.act(obs, is_first, None, clock).action
        chosen = np.where(align_mask(deviates, act.action), drawn, act.action)
        return Act(chosen, act.recurrent_state, act.extras)

    def state_dict(self) -> State:
        return self.agent.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.agent.load_state_dict(state)
