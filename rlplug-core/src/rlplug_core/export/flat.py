"""Observations as a list of named tensors, which is what exported programs take."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from gymnasium.vector.utils import create_empty_array
from torch import Tensor, nn

from rlplug_core.export.greedy import Greedy, GreedyRecurrent
from rlplug_core.nets.one_hot import Counted
from rlplug_core.types import Space, Spec, tree_map


class Flat(nn.Module):
    """A module that takes a list of tensors in place of a tree of observations, and gives a list."""

    def __init__(self, module: Greedy | GreedyRecurrent, spec: Spec) -> None:
        super().__init__()
        self.module = module
        self.shape = _inside(spec.obs)
        self.memory = dict(module.parts) if isinstance(module, GreedyRecurrent) else {}
        self.names = list(leaves(self.shape))
        if self.memory:
            self.names += ["first", *(f"memory.{part}" for part in self.memory)]

    def example(self) -> list[Tensor]:
        """Two rows of each input."""
        state = [torch.zeros(2, width) for width in self.memory.values()]
        first = [torch.zeros(2, dtype=torch.bool)] if self.memory else []
        return [torch.from_numpy(leaf) for leaf in leaves(self.shape).values()] + first + state

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        given = iter(inputs)
        obs = tree_map(lambda _: next(given), self.shape)
        if not self.memory:
            return [self.module(obs)]
        first = next(given)
        action, after = self.module(obs, first, {part: next(given) for part in self.memory})
        return [action, *(after[part] for part in self.memory)]


def leaves(tree: object, prefix: str = "obs") -> dict[str, Any]:
    """The arrays of a tree of observations by name: `obs`, or `obs.hand.position`."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    found: dict[str, object] = {}
    for key, part in tree.items():
        found |= leaves(part, f"{prefix}.{key}")
    return found


def _inside(space: Space) -> Any:
    """Two observations that a space has; an encoder may look up what they count, and finds nothing for others."""
    if isinstance(space, spaces.Dict):
        return {key: _inside(part) for key, part in space.spaces.items()}
    zeros = np.asarray(create_empty_array(space, n=2))
    if isinstance(space, spaces.Box):
        return zeros.clip(space.low, space.high)
    return zeros + space.start if isinstance(space, Counted) else zeros
