"""Agents: how networks act. They share the learner's parameters and own their random numbers."""

from __future__ import annotations

import numpy as np
from torch import nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.clock import Clock
from rlplug_core.nets.memory import RecurrentPolicy
from rlplug_core.nets.modules import Policy
from rlplug_core.seeds import Draws, Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Carry, Obs, State


class NetworkAgent:
    """The base of agents that act through one network; without memory unless a subclass has one.

    Random numbers are drawn in blocks, for as many rows as `initial` was called with.
    """

    def __init__(self, network: nn.Module, seeds: Seeds, acting: str = "auto") -> None:
        self.network, self.seeds = network, seeds
        self.forward = forward(network, acting)
        self.draws: Draws | None = None

    def weights(self) -> State:
        return dict(self.network.state_dict())

    def initial(self, rows: int) -> Carry:
        self.draws = Draws(self.seeds.generator(), lambda generator, size: self.noise(generator, (size, rows)))
        return None

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        """A block of random numbers [draws, rows, k], one draw per step."""
        raise NotImplementedError

    def state_dict(self) -> State:
        return {"draws": None if self.draws is None else self.draws.state_dict()}

    def load_state_dict(self, state: State) -> None:
        if self.draws is not None and state["draws"] is not None:
            self.draws.load_state_dict(state["draws"])


class PolicyAgent(NetworkAgent):
    """Samples from a policy; its mode when it must not explore.

    With `log_prob`, the log-probability of each action travels in `extras["log_prob"]` [N]: only the actor knows it.
    """

    def __init__(
        self, policy: Policy | RecurrentPolicy, seeds: Seeds, acting: str = "auto", log_prob: bool = False
    ) -> None:
        self.head, self.log_prob = policy.head, log_prob
        super().__init__(policy, seeds, acting)

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self.head.noise(generator, shape)

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        return self.choose(self.forward(obs), None, explore)

    def choose(self, outputs: Array, carry: Carry, explore: bool) -> Act:
        """Actions by the outputs of the head [N, size]."""
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs), carry, NO_EXTRAS)
        action = self.head.sample(outputs, self.draws.next())
        if self.log_prob:
            return Act(action, carry, {"log_prob": self.head.host_log_prob(outputs, action)})
        return Act(action, carry, NO_EXTRAS)
