"""Observations as a list of named tensors, the input of exported programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gymnasium.spaces as spaces
import numpy as np
import torch
from gymnasium.vector.utils import create_empty_array
from torch import Tensor, nn

from rlplug_core.export.greedy import Greedy, GreedyRecurrent
from rlplug_core.nets.many_agents import agents_in
from rlplug_core.nets.one_hot import Counted
from rlplug_core.types import Space, tree_map


class Flat(nn.Module):
    """A module with lists of tensors as input and output instead of a tree of observations.

    Attributes:
        names: the names of the inputs.
    """

    def __init__(self, module: Greedy | GreedyRecurrent, space: Space) -> None:
        super().__init__()
        self.module = module
        self.space = space
        self.example_obs = valid_rows(space)
        self.agents = agents_in(module)
        self.memory = dict(module.parts) if isinstance(module, GreedyRecurrent) else {}
        self.names = list(example_inputs(space, self.memory, self.agents))

    def example(self) -> list[Tensor]:
        """Return the tensors of `example_inputs`."""
        return list(example_inputs(self.space, self.memory, self.agents).values())

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        remaining = iter(inputs)
        obs = tree_map(lambda _: next(remaining), self.example_obs)
        if not self.memory:
            return [self.module(obs)]
        first = next(remaining)
        action, after = self.module(obs, first, {part: next(remaining) for part in self.memory})
        return [action, *(after[part] for part in self.memory)]


def example_inputs(
    space: Space,
    memory: Mapping[str, int | Sequence[int]],
    agents: int,
) -> dict[str, Tensor]:
    """Return two example rows of each input by name; with a network for each agent, the rows of two worlds.

    Args:
        space: the observation space.
        memory: width or shape of each part of the recurrent state, by name.
        agents: number of networks for agents, 1 if all agents share one.
    """
    rows = {name: torch.from_numpy(leaf) for name, leaf in leaves(valid_rows(space)).items()}
    if memory:
        rows["first"] = torch.zeros(2, dtype=torch.bool)
        rows |= {
            f"memory.{part}": torch.zeros(2, *shape_of(width)) for part, width in memory.items()
        }
    return {name: torch.cat([each] * agents) for name, each in rows.items()}


def shape_of(width: int | Sequence[int]) -> Sequence[int]:
    """Return the shape of a part of the recurrent state that an export records by its width or shape."""
    return (width,) if isinstance(width, int) else width


def leaves(tree: object, prefix: str = "obs") -> dict[str, object]:
    """Return the arrays of a tree of observations by name: `obs`, or `obs.hand.position`."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    arrays: dict[str, object] = {}
    for key, part in tree.items():
        arrays |= leaves(part, f"{prefix}.{key}")
    return arrays


def valid_rows(space: Space) -> object:
    """Return two valid observations of a space, because an encoder may look up values and fails for invalid ones."""
    if isinstance(space, spaces.Dict):
        return {key: valid_rows(part) for key, part in space.spaces.items()}
    zeros = np.asarray(create_empty_array(space, n=2))
    if isinstance(space, spaces.Box):
        return zeros.clip(space.low, space.high)
    return zeros + space.start if isinstance(space, Counted) else zeros
