"""A policy and a critic with a memory, which starts empty in every episode."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rlplug_core.arrays import like_inputs, no_gradient, to_device
from rlplug_core.batches import Rollout, Samples, Truncations
from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import MLP, check_not_shared, encoder
from rlplug_core.nets.former_names import former_method
from rlplug_core.nets.net import CriticNet, Net
from rlplug_core.nets.noisy import Noise
from rlplug_core.nets.policies import (
    Critic,
    PolicyAndCritic,
    PolicyNetwork,
    ValueFunction,
    value_layer,
)
from rlplug_core.nets.recurrent import Remembered, make_memory, with_units
from rlplug_core.nets.sequences import sequences
from rlplug_core.types import Array, Obs, Spec, tree_map


class RecurrentPolicy(nn.Module):
    """Maps observations and a memory to the outputs of an action head; illegal actions are masked.

    Observations go through the encoder of `net` and then `memory`, such as `gru` or `gru:units=128`. Rows [T * N] are
    those of the first step, then those of the second, and so on. `units` is an older option for the size of a cell.
    """

    #: No layer is noisy.
    noisy = False

    def __init__(
        self,
        spec: Spec,
        net: Net,
        memory: str,
        units: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder, features = encoder(spec.obs, replace(net, shared=False))
        self.memory = make_memory(with_units(memory, units), features)
        self.policy = PolicyNetwork(spec, net, (nn.Identity(), self.memory.units))
        self.head = self.policy.head

    def remember(
        self,
        obs: Obs,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> Remembered:
        """Unroll the memory along observations.

        Args:
            obs: [T * N, ...] observations.
            is_first, before, valid: as in `Memory.unroll`.

        Returns:
            The recurrent state after each observation, [T * N, ...] each part.
        """
        return self.memory.unroll(self.encoder(obs), is_first, before, valid)

    def forward(
        self,
        obs: Obs,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> Tensor:
        """Compute outputs of the action head from sequences.

        Args:
            obs: [T * N, ...] observations.
            is_first, before, valid: as in `Memory.unroll`.

        Returns:
            Outputs [T * N, size].
        """
        return self.from_memory(self.remember(obs, is_first, before, valid), obs)

    def from_memory(self, memory: Remembered, obs: Obs) -> Tensor:
        """Compute outputs of the action head from recurrent states.

        Args:
            memory: the recurrent state after `obs`, [B, ...] each part.
            obs: [B, ...] observations, which may contain an action mask.

        Returns:
            Outputs [B, size].
        """
        return self.policy.from_features(memory["h"], obs)

    on = former_method("on", "from_memory")

    def outputs(self, rollout: Rollout) -> Array:
        """Compute outputs without a gradient: arrays if the rollout has arrays, else tensors.

        Args:
            rollout: T steps of N environments, and the recurrent state before them.

        Returns:
            Outputs [T * N, size] for its observations.
        """
        device = next(self.parameters()).device
        valid = None if rollout.whole else rollout.weight.reshape(-1) > 0
        inputs = (rollout.flat_obs, rollout.is_first.reshape(-1), rollout.recurrent_state, valid)
        with no_gradient(rollout.obs):
            obs, *others = (to_device(tree, device) for tree in inputs)
            outputs: Array = like_inputs(
                self.from_memory(self.remember(obs, *others), obs), rollout.obs
            )
        return outputs


class RecurrentCritic(ValueFunction):
    """Maps recurrent states of a policy to state values [B], with PopArt if `popart` is on.

    With `layers` it has hidden layers as in `net`, and does not train the memory.
    """

    def __init__(
        self,
        units: int,
        net: Net,
        popart: bool = False,
        layers: bool = False,
    ) -> None:
        super().__init__()
        self.layers = MLP(units, net) if layers else None
        self.output = value_layer(self.layers.features if self.layers else units, popart, net)

    def normalized(self, memory: Remembered) -> Tensor:
        if self.layers is None:
            return self.from_features(memory["h"])
        return self.from_features(self.layers(memory["h"].detach()))


class RecurrentPolicyAndCritic:
    """A policy with a memory, and a critic that reads the same memory, so an actor needs only the policy.

    Like `PolicyAndCritic` it is not a module: the learner holds `policy` and `critic` itself. With `critic_net.obs` the
    critic reads these keys of the observation instead of the memory.

    Raises:
        UsageError: the critic reads the memory, and `critic_net` sets options.
    """

    critic: RecurrentCritic | Critic

    def __init__(
        self,
        spec: Spec,
        net: Net,
        memory: str,
        units: int | None = None,
        popart: bool = False,
        critic_layers: bool = False,
        critic_net: CriticNet | None = None,
    ) -> None:
        critic_options = critic_net or CriticNet()
        differences = critic_options.differences()
        if differences and not critic_options.obs:
            raise UsageError(
                f"with a memory the critic reads the memory of the policy; leave critic_net.{min(differences)} out, or "
                "give the critic its own observations with critic_net.obs"
            )
        self.policy = RecurrentPolicy(spec, net, memory, units)
        if critic_options.obs:
            self.critic = Critic(spec, critic_options.over(net), popart=popart)
        else:
            self.critic = RecurrentCritic(self.policy.memory.units, net, popart, critic_layers)

    def __call__(
        self,
        obs: Obs,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute outputs [T * N, size] and normalized values [T * N]; arguments as in `RecurrentPolicy.remember`."""
        memory = self.policy.remember(obs, is_first, before, valid)
        critic_input = memory if isinstance(self.critic, RecurrentCritic) else obs
        return self.policy.from_memory(memory, obs), self.critic.normalized(critic_input)

    #: Makes the samples of a rollout for these networks: one sequence of T steps for each environment.
    samples = staticmethod(sequences)

    def critic_samples(self, samples: Samples) -> Samples:
        """Return samples with the critic's inputs as `obs`: the memory after each step, without a gradient.

        If the critic has its own observations, `obs` does not change.
        """
        critic_input = samples.obs
        if isinstance(self.critic, RecurrentCritic):
            with torch.no_grad():
                critic_input = {"h": self.policy.remember(*samples.inputs)["h"]}
        return Samples(
            weight=samples.weight,
            share=samples.counts,
            obs=critic_input,
            action=samples.action,
            advantage=samples.advantage,
            target=samples.target,
            extras=samples.extras,
        )


#: A policy and its critic, with or without a memory.
ActorCritic: TypeAlias = PolicyAndCritic | RecurrentPolicyAndCritic


def policy_and_critic(
    spec: Spec,
    net: Net,
    memory: str | None = None,
    popart: bool = False,
    noisy: Noise | None = None,
    sigma: float | None = None,
    apart: bool = False,
    critic_net: CriticNet | None = None,
) -> ActorCritic:
    """Make a policy and a critic; if there is a memory, both read it.

    Args:
        spec: spec of the environment.
        net: options of the layers.
        memory: the name and options of a memory, such as `gru:units=128`; None or empty: no memory.
        popart: normalize values by running statistics.
        noisy, sigma: kind and initial standard deviation of the noise on the policy's last layer.
        apart: whether policy and critic have separate losses. If so, they share no layers, and a critic that reads a
            memory has its own hidden layers and does not train the memory.
        critic_net: options of the critic's network that differ from those of `net`.

    Raises:
        UsageError: a policy with a memory would have noisy layers, networks with separate losses would share layers,
            or `critic_net` contradicts the other options.
    """
    if apart:
        check_not_shared(net)
    if not memory:
        return PolicyAndCritic(spec, net, popart, noisy, sigma, critic_net=critic_net)
    if (noisy, sigma) != (None, None):
        raise UsageError(
            "a policy with a memory has no noisy layers; leave noisy or memory at none"
        )
    return RecurrentPolicyAndCritic(
        spec, net, memory, popart=popart, critic_layers=apart, critic_net=critic_net
    )


def recurrent_values(
    rollout: Rollout,
    networks: RecurrentPolicyAndCritic,
    device: torch.device | None = None,
) -> tuple[Array, Array]:
    """Return V of every observation and of every step's true successor, both [T, N], as `Rollout.values` does.

    The successor of the last step, and of a truncated one, gets a value from the memory after that step.
    """
    device = device or next(networks.policy.parameters()).device
    shape = rollout.reward.shape
    num_envs = shape[1]
    flat = tree_map(lambda array: array.reshape(-1, *array.shape[2:]), rollout.obs)
    inputs = (flat, rollout.is_first, rollout.weight > 0, rollout.recurrent_state)
    with no_gradient(rollout.obs):
        obs, is_first, weighted, before = (to_device(tree, device) for tree in inputs)
        # The observations after the last step are one more step, which is valid and starts no episode.
        all_false = is_first.new_zeros(num_envs)
        first = torch.cat([is_first.flatten(), all_false])
        valid = None if rollout.whole else torch.cat([weighted.flatten(), ~all_false])
        memory = networks.policy.remember(obs, first, before, valid)
        value = networks.critic(memory)
        successor = value[num_envs:].clone()
        if rollout.truncations.count:
            _write_truncated(successor, memory, rollout.truncations, networks)
        values = like_inputs(value[:-num_envs].reshape(shape), rollout.obs)
        next_values = like_inputs(successor.reshape(shape), rollout.obs)
    return values, next_values


def _write_truncated(
    successor: Tensor,
    memory: Remembered,
    truncations: Truncations,
    networks: RecurrentPolicyAndCritic,
) -> None:
    """Write the values of the observations after truncated steps into `successor` [T * N].

    Args:
        successor: the values of the successors of all steps.
        memory: the recurrent state after each observation, [(T + 1) * N, ...] each part.
        truncations: the truncated steps and the observations after them.
        networks: the networks.
    """
    index = to_device(truncations.index, successor.device)
    before = tree_map(lambda part: part.index_select(0, index), memory)
    obs = to_device(truncations.obs, successor.device)
    after = networks.policy.remember(obs, torch.zeros_like(index, dtype=torch.bool), before)
    successor[index[: truncations.count]] = networks.critic(after)[: truncations.count]
