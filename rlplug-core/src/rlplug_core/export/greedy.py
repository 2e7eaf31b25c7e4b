"""Converts agents to modules that map observations to greedy actions, without the agent's class or random numbers.

Modules of recurrent agents have the state as a further input and output. An agent of a plugin implements
`protocols.SupportsExport`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.acting.continuous import NoiseAgent, SampleAgent
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.acting.recurrent import MemoryAgent, MemoryGreedy, TrunkAgent
from rlplug_core.errors import UsageError
from rlplug_core.nets.heads.bernoulli import Bernoulli
from rlplug_core.nets.heads.categorical import Categorical, MultiCategorical
from rlplug_core.nets.heads.gaussian import Gaussian
from rlplug_core.nets.heads.product import Product
from rlplug_core.nets.heads.protocol import Head
from rlplug_core.nets.heads.tanh import SquashedGaussian
from rlplug_core.nets.recurrent import forget
from rlplug_core.protocols import Agent, SupportsExport, SupportsInitial
from rlplug_core.types import Array, Obs

Choose = Callable[[Tensor], Tensor]


class Greedy(nn.Module):
    """Maps observations [B, ...] to canonical actions [B, ...]; `choose` maps outputs of the network to actions."""

    def __init__(self, network: nn.Module, choose: Choose) -> None:
        super().__init__()
        self.network = network
        self.choose = choose

    def forward(self, obs: Obs) -> Tensor:
        return self.choose(self.network(obs))


class GreedyRecurrent(nn.Module):
    """Like `Greedy`, with two more inputs: first steps of episodes [B] and the recurrent state [B, ...].

    It returns actions and the new state.

    Attributes:
        parts: width or shape of each part of the recurrent state, by name.
    """

    def __init__(self, policy: Any, choose: Choose) -> None:
        super().__init__()
        self.policy = policy
        self.choose = choose
        initial = policy.memory.initial(1)
        self.parts = {part: width_of(value.shape[1:]) for part, value in initial.items()}

    def forward(
        self,
        obs: Obs,
        first: Tensor,
        before: dict[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        state = forget(before, first)
        after = self.policy.memory.step(self.policy.encoder(obs), state)
        return self.choose(self.policy.from_memory(after, obs)), after


class GreedyTrunk(GreedyRecurrent):
    """Like `GreedyRecurrent`, for an agent with a trunk: `choose` is a network that reads the features of the trunk."""

    def forward(
        self,
        obs: Obs,
        first: Tensor,
        before: dict[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        after = self.policy.memory.step(self.policy.encoder(obs), forget(before, first))
        return self.choose(after["h"]), after


class GreedyModule(GreedyRecurrent):
    """Like `GreedyRecurrent`, for the module that an agent of a plugin exports.

    Raises:
        UsageError: its state does not start with zeros.
    """

    def __init__(
        self,
        module: nn.Module,
        initial: Mapping[str, Array],
    ) -> None:
        nn.Module.__init__(self)
        self.module = module
        for part, value in initial.items():
            if np.any(value):
                raise UsageError(
                    f"the exported state '{part}' of a {type(module).__name__} does not start with zeros, but that of "
                    "an exported policy does; add the initial values to the state inside the module"
                )
        self.parts = {part: width_of(value.shape[1:]) for part, value in initial.items()}

    def forward(
        self,
        obs: Obs,
        first: Tensor,
        before: dict[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        action, after = self.module(obs, first, before)
        return action, after


def width_of(shape: Sequence[int]) -> int | list[int]:
    """Return the width of a vector, or the shape of another array, as exports record it."""
    return int(shape[0]) if len(shape) == 1 else [int(size) for size in shape]


def greedy(agent: Agent | SupportsExport) -> Greedy | GreedyRecurrent:
    """Return the agent as a module that can be exported.

    Raises:
        UsageError: this kind of agent cannot be exported.
    """
    if isinstance(agent, SupportsExport):
        module = agent.exported()
        if isinstance(module, SupportsInitial):
            return GreedyModule(module, module.initial(1))
        return Greedy(module, lambda action: action)
    if isinstance(agent, TrunkAgent):
        return GreedyTrunk(agent.trunk, greedy(agent.agent))
    if isinstance(agent, MemoryAgent):
        return GreedyRecurrent(agent.policy, mode(agent.head))
    if isinstance(agent, MemoryGreedy):
        return GreedyRecurrent(agent.recurrent, lambda values: values.argmax(-1))
    if isinstance(agent, PolicyAgent | SampleAgent):
        return Greedy(agent.network, mode(agent.head))
    if isinstance(agent, NoiseAgent):
        shape = agent.shape
        return Greedy(agent.network, lambda action: action.reshape(-1, *shape))
    if isinstance(agent, EpsilonGreedy):
        return Greedy(agent.network, lambda values: values.argmax(-1))
    raise UsageError(
        f"a {type(agent).__name__} cannot be exported; its author can give it a method exported() that returns a "
        "module from observations to actions"
    )


def mode(head: Head) -> Choose:
    """Return the method `mode` of a head as a function of tensors [B, size].

    Raises:
        UsageError: the head is that of a plugin.
    """
    if isinstance(head, Categorical):
        return lambda outputs: outputs.argmax(-1)
    if isinstance(head, MultiCategorical):
        places = head.places
        choices = head.shape
        return lambda outputs: places(outputs).argmax(-1).reshape(-1, *choices)
    if isinstance(head, Bernoulli):
        bits = head.shape
        return lambda outputs: (outputs > 0).to(torch.int8).reshape(-1, *bits)
    if isinstance(head, Gaussian):
        dims = head.dims
        shape = head.shape
        if isinstance(head, SquashedGaussian):
            return lambda outputs: outputs[:, :dims].tanh().reshape(-1, *shape)
        return lambda outputs: outputs[:, :dims].reshape(-1, *shape)
    if isinstance(head, Product):
        return _mode_of_product(head)
    raise UsageError(
        f"a policy with the head {type(head).__name__} cannot be exported; give its agent a method exported()"
    )


def _mode_of_product(head: Product) -> Choose:
    """Return a function that gives the modes of all parts as columns [B, k]."""
    modes = [(mode(member.head), member.outputs) for member in head.members]

    def choose(outputs: Tensor) -> Tensor:
        columns = [
            choice(outputs[:, part]).reshape(outputs.shape[0], -1).float() for choice, part in modes
        ]
        return torch.cat(columns, -1)

    return choose
