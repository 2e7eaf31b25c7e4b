"""Agents: how networks act. They share the learner's parameters and own their random numbers."""

from __future__ import annotations

import numpy as np
from torch import nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.batches import rows_of
from rlplug_core.clock import Clock
from rlplug_core.nets.encoders import MASK
from rlplug_core.nets.modules import Policy
from rlplug_core.schedules import Schedule
from rlplug_core.seeds import Draws, Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Carry, Obs, State


class NetworkAgent:
    """The base of agents that act through one network without memory.

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

    def __init__(self, policy: Policy, seeds: Seeds, acting: str = "auto", log_prob: bool = False) -> None:
        self.head, self.log_prob = policy.head, log_prob
        super().__init__(policy, seeds, acting)

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self.head.noise(generator, shape)

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        outputs = self.forward(obs)
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs), None, NO_EXTRAS)
        action = self.head.sample(outputs, self.draws.next())
        if self.log_prob:
            return Act(action, None, {"log_prob": self.head.host_log_prob(outputs, action)})
        return Act(action, None, NO_EXTRAS)


class EpsilonGreedy(NetworkAgent):
    """The action of highest value, or with probability epsilon (a schedule of progress) any legal one."""

    def __init__(self, network: nn.Module, epsilon: Schedule, seeds: Seeds, acting: str = "auto") -> None:
        self.epsilon = epsilon
        super().__init__(network, seeds, acting)

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        return generator.random((*shape, 2), dtype=np.float32)

    def act(self, obs: Obs, first: Array, carry: Carry, clock: Clock, explore: bool = True) -> Act:
        if not explore or self.draws is None:
            return Act(self.forward(obs).argmax(-1), None, NO_EXTRAS)
        noise = self.draws.next()
        exploring = noise[:, 0] < self.epsilon(clock.progress)
        values = self.forward(obs)
        action = values.argmax(-1)
        if exploring.any():
            action = np.where(exploring, self.any_legal(obs, noise[:, 1], values.shape[1]), action)
        return Act(action, None, NO_EXTRAS)

    def any_legal(self, obs: Obs, uniform: Array, actions: int) -> Array:
        """One legal action per row, each as likely, from uniform numbers [N] in [0, 1)."""
        if not (isinstance(obs, dict) and MASK in obs):
            return (uniform * actions).astype(np.int64)
        legal = np.asarray(obs[MASK], dtype=bool).reshape(rows_of(obs), actions)
        rank = np.cumsum(legal, -1)
        action: Array = (rank > (uniform * rank[:, -1]).astype(np.int64)[:, None]).argmax(-1)
        return action
