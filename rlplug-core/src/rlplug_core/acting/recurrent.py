"""Agents with a memory, which they return as their recurrent state."""

from __future__ import annotations

import torch

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent, start_on_device
from rlplug_core.arrays import like_inputs, no_gradient, to_device
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule
from rlplug_core.nets.memory_networks import ActorCritic, RecurrentPolicy, RecurrentPolicyAndCritic
from rlplug_core.nets.memory_trunk import MemoryTrunk, Trunk
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.protocols import Agent
from rlplug_core.seeds import Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, State


class MemoryAgent(PolicyAgent):
    """Samples from a policy with memory, its recurrent state; a row that starts an episode has an empty memory."""

    def __init__(
        self,
        policy: RecurrentPolicy,
        seeds: Seeds,
        inference_backend: str = "auto",
        log_prob: bool = False,
    ) -> None:
        super().__init__(policy, seeds, inference_backend, log_prob)
        self.policy = policy
        self.device = next(policy.parameters()).device

    def initial(self, num_envs: int) -> RecurrentState:
        super().initial(num_envs)
        return self.policy.memory.initial(num_envs)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        with no_gradient(obs):
            obs_tensor, is_first_tensor, before = (
                to_device(tree, self.device) for tree in (obs, is_first, recurrent_state)
            )
            memory = self.policy.remember(obs_tensor, is_first_tensor, before)
            outputs, after = (
                like_inputs(each, obs)
                for each in (self.policy.from_memory(memory, obs_tensor), memory)
            )
        return self.choose(outputs, after, explore)


class MemoryGreedy(EpsilonGreedy):
    """Acts on action values with a memory, which is its recurrent state; arguments as of `EpsilonGreedy`.

    Args:
        chooser: an agent that explores in another way; it chooses actions by their values, and draws the noise of noisy
            layers. Default: epsilon-greedy.
    """

    def __init__(
        self,
        network: RecurrentQ,
        epsilon: Schedule,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
        evaluation: float = 0.0,
        chooser: EpsilonGreedy | None = None,
    ) -> None:
        super().__init__(
            network,
            epsilon,
            seeds,
            inference_backend=inference_backend,
            warmup=warmup,
            evaluation=evaluation,
        )
        self.recurrent = network
        self.device = next(network.parameters()).device
        self.chooser = chooser or EpsilonGreedy(
            network.q_network, epsilon, seeds, warmup=warmup, evaluation=evaluation
        )

    def initial(self, num_envs: int) -> RecurrentState:
        self.chooser.initial(num_envs)
        return self.recurrent.memory.initial(num_envs)

    def use_tensors(self, num_envs: int, device: torch.device) -> None:
        """Act on tensors on a device until the next call of `initial`."""
        self.chooser.use_tensors(num_envs, device)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        explores = explore and self.chooser.draws is not None
        noise = self.chooser.weight_noise() if explores else None
        with no_gradient(obs):
            obs_tensor, is_first_tensor, before, drawn = (
                to_device(tree, self.device) for tree in (obs, is_first, recurrent_state, noise)
            )
            memory = self.recurrent.remember(obs_tensor, is_first_tensor, before)
            values, after = (
                like_inputs(each, obs)
                for each in (self.recurrent.from_memory(memory, obs_tensor, drawn), memory)
            )
        return Act(self.chooser.select(obs, values, clock, explore), after, NO_EXTRAS)

    def state_dict(self) -> State:
        return self.chooser.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.chooser.load_state_dict(state)


class TrunkAgent:
    """Acts on the features of a trunk with a memory, by an agent that reads them as observations."""

    def __init__(self, trunk: MemoryTrunk, agent: Agent) -> None:
        self.trunk = trunk
        self.agent = agent
        self.device = next(trunk.parameters()).device

    def weights(self) -> State:
        trunk = {f"trunk.{name}": part for name, part in self.trunk.state_dict().items()}
        return {**trunk, **self.agent.weights()}

    def initial(self, num_envs: int) -> RecurrentState:
        self.agent.initial(num_envs)
        return self.trunk.memory.initial(num_envs)

    def use_tensors(self, num_envs: int, device: torch.device) -> None:
        """Act on tensors on a device until the next call of `initial`."""
        start_on_device(self.agent, num_envs, device)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        with no_gradient(obs):
            inputs = (to_device(tree, self.device) for tree in (obs, is_first, recurrent_state))
            after = like_inputs(self.trunk.remember(*inputs), obs)
        act = self.agent.act(after["h"], is_first, None, clock, explore)
        return Act(act.action, after, act.extras)

    def state_dict(self) -> State:
        return self.agent.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.agent.load_state_dict(state)


def trunk_agent(trunk: Trunk | None, agent: Agent) -> Agent:
    """Return the agent, with the memory of the trunk if it has one."""
    return TrunkAgent(trunk, agent) if isinstance(trunk, MemoryTrunk) else agent


def policy_agent(
    networks: ActorCritic,
    seeds: Seeds,
    inference_backend: str = "auto",
    log_prob: bool = False,
    hold: int = 1,
) -> PolicyAgent:
    """Return the agent of a policy, which carries a memory if the policy has one; arguments as of `PolicyAgent`."""
    if isinstance(networks, RecurrentPolicyAndCritic):
        return MemoryAgent(networks.policy, seeds, inference_backend, log_prob)
    return PolicyAgent(networks.policy, seeds, inference_backend, log_prob, hold)
