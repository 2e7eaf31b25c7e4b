"""Agents that act with networks. They share the learner's parameters and have their own random numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.arrays import DeviceDraws, Either, is_on_device, to_device
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.nets.forward import TorchForward, fast_forward
from rlplug_core.nets.memory_networks import RecurrentPolicy
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.protocols import Agent, SupportsTensors
from rlplug_core.seeds import Draws, Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, State, first_leaf


def start_on_device(agent: Agent, num_envs: int, device: torch.device) -> None:
    """Let an agent act on tensors [num_envs, ...] on a device, until its next call of `initial`.

    Raises:
        UsageError: it acts on arrays only.
    """
    if not isinstance(agent, SupportsTensors):
        raise UsageError(
            f"{type(agent).__name__} acts on arrays, and the environment gives tensors on {device}; use an "
            "algorithm that takes tensors, such as ppo, or an environment on the host; to make your own agent take "
            "tensors, give it the method 'use_tensors', like rl.NetworkAgent"
        )
    agent.use_tensors(num_envs, device)


class NetworkAgent:
    """The base of agents that act through one network; without memory unless a subclass has one.

    Random numbers are drawn in blocks, for as many environments as `initial` was called with.
    """

    def __init__(
        self,
        network: nn.Module,
        seeds: Seeds,
        inference_backend: str = "auto",
    ) -> None:
        self.network = network
        self.seeds = seeds
        self.forward = fast_forward(network, inference_backend)
        #: None before `initial`; until then a policy agent takes the mode.
        self.draws: Draws | DeviceDraws | None = None

    def weights(self) -> State:
        return dict(self.network.state_dict())

    def initial(self, num_envs: int) -> RecurrentState:
        self.draws = Draws(
            self.seeds.generator(), lambda generator, size: self.noise(generator, (size, num_envs))
        )
        return None

    def use_tensors(self, num_envs: int, device: torch.device) -> None:
        """Act on tensors on a device, and draw random numbers there, until the next call of `initial`."""
        self.draws = DeviceDraws(self.seeds, device, num_envs, self.noise)
        if self.forward.backend == "numpy":  # chosen for environments that give arrays
            self.forward = TorchForward(self.network)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        """Return a block of random numbers [draws, N, k], one draw per step."""
        raise NotImplementedError

    def state_dict(self) -> State:
        return {"draws": None if self.draws is None else self.draws.state_dict()}

    def load_state_dict(self, state: State) -> None:
        if self.draws is not None and state["draws"] is not None:
            self.draws.load_state_dict(state["draws"])


class RolloutNoise:
    """Computes outputs of a policy with noise on its weights, which stays the same for `hold` vector steps.

    It belongs to one agent, for as many environments as `begin` was called with.
    """

    def __init__(self, policy: PolicyNetwork, seeds: Seeds, hold: int) -> None:
        self.policy = policy
        self.forward = TorchForward(policy)
        self.seeds = seeds
        self.hold = hold
        self.begin(1)

    def begin(self, num_envs: int) -> None:
        """Start drawing for this number of environments."""
        self.generator = self.seeds.generator()
        self.steps_left = 0
        self.noise_seeds = np.zeros(num_envs, np.int64)

    def __call__(self, obs: Obs) -> Array:
        """Return outputs [N, size] for the next vector step; set `noise_seeds` [N], the seeds of the rows' noise."""
        if self.steps_left == 0:
            self.steps_left = self.hold
            self.noise_seeds = self.generator.integers(2**63, size=len(self.noise_seeds))
            self.noise = self.policy.draw(self.noise_seeds)
            if is_on_device(obs):
                self.noise = to_device(self.noise, first_leaf(obs).device)
        self.steps_left -= 1
        return self.forward(obs, self.noise)

    def state_dict(self) -> State:
        return {
            "generator": self.generator.bit_generator.state,
            "left": self.steps_left,
            "numbers": self.noise_seeds,
        }

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["generator"]
        self.steps_left = state["left"]
        self.noise_seeds = np.array(state["numbers"])
        self.noise = self.policy.draw(self.noise_seeds)


class PolicyAgent(NetworkAgent):
    """Samples from a policy, or takes its mode if it must not explore.

    With `log_prob`, the log-probability of each action is in `extras["log_prob"]` [N], because only the actor knows it.

    A policy with noisy layers acts with noise, separate for each environment and constant for `hold` vector steps,
    usually a rollout (Fortunato et al., 2018, arXiv:1706.10295, section 3.3). The seeds of the noise are in
    `extras["noise"]` [N] int64; `PolicyNetwork.draw` turns them into noise.
    """

    def __init__(
        self,
        policy: PolicyNetwork | RecurrentPolicy,
        seeds: Seeds,
        inference_backend: str = "auto",
        log_prob: bool = False,
        hold: int = 1,
    ) -> None:
        self.head = policy.head
        self.log_prob = log_prob
        super().__init__(policy, seeds, inference_backend)
        self.rollout_noise: RolloutNoise | None = None
        if isinstance(policy, PolicyNetwork) and policy.noisy:
            self.rollout_noise = RolloutNoise(policy, seeds.child("weights"), hold)

    def initial(self, num_envs: int) -> RecurrentState:
        if self.rollout_noise is not None:
            self.rollout_noise.begin(num_envs)
        return super().initial(num_envs)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        return self.head.noise(generator, shape)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        if self.rollout_noise is None or not explore or self.draws is None:
            return self.choose(self.forward(obs), None, explore)
        act = self.choose(self.rollout_noise(obs), None, explore)
        noise_seeds: Either = self.rollout_noise.noise_seeds
        if is_on_device(obs):
            noise_seeds = to_device(noise_seeds, first_leaf(obs).device)
        return Act(act.action, None, {**act.extras, "noise": noise_seeds})

    def choose(
        self,
        outputs: Array,
        recurrent_state: RecurrentState,
        explore: bool,
    ) -> Act:
        """Draw actions, or take the most likely ones.

        Args:
            outputs: [N, size] of the policy's network.
            recurrent_state: [N, ...] memory for the next step; None without a memory.
            explore: False for the mode of the distributions.

        Returns:
            The actions [N, ...], with `log_prob` [N] in its extras if the agent was made with `log_prob`.
        """
        if not explore or self.draws is None:
            return Act(self.head.mode(outputs), recurrent_state, NO_EXTRAS)
        action = self.head.sample(outputs, self.draws.next(len(outputs)))
        if not self.log_prob:
            return Act(action, recurrent_state, NO_EXTRAS)
        head = self.head
        log_prob = head.log_prob if isinstance(outputs, Tensor) else head.host_log_prob
        return Act(action, recurrent_state, {"log_prob": log_prob(outputs, action)})

    def state_dict(self) -> State:
        return (
            super().state_dict()
            if self.rollout_noise is None
            else {**super().state_dict(), "held": self.rollout_noise.state_dict()}
        )

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.rollout_noise is not None:
            self.rollout_noise.load_state_dict(state["held"])


class BehaviorAgent(PolicyAgent):
    """A policy agent that adds the outputs [N, size] of its head to the extras of each step, as `outputs`."""

    def choose(
        self,
        outputs: Array,
        recurrent_state: RecurrentState,
        explore: bool,
    ) -> Act:
        act = super().choose(outputs, recurrent_state, explore)
        is_greedy = not explore or self.draws is None
        return (
            act
            if is_greedy
            else Act(act.action, recurrent_state, {**act.extras, "outputs": outputs})
        )
