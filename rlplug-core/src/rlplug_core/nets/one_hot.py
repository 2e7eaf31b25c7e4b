"""Discrete and MultiDiscrete observations as one-hot vectors, in torch and by rules."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.nets.by_rules import FORMS, NoRule
from rlplug_core.nets.layer_rules import Rule, Slopes
from rlplug_core.types import Array

#: Features up to which rules pay: a step of DQN takes 0.65 of its time with 16 of them, and no less with 500.
MOST = 64


class OneHot(nn.Module):
    """Discrete or MultiDiscrete observations [B, ...] as one-hot vectors, those of all places side by side [B, F].

    The next layer's weights are their embedding.
    """

    offset: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.reshape(space.n if isinstance(space, spaces.Discrete) else space.nvec, -1).astype(np.int64)
        self.features = int(sizes.sum())
        self.first = np.cumsum(sizes) - sizes - np.reshape(space.start, -1)
        self.register_buffer("offset", torch.from_numpy(self.first), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        columns = obs.reshape(obs.shape[0], -1).long() + self.offset
        return torch.zeros(columns.shape[0], self.features, device=obs.device).scatter_(1, columns, 1.0)

    def in_numpy(self, obs: Array) -> Array:
        """Do what `forward` does, to an array."""
        columns = obs.reshape(len(obs), -1).astype(np.int64) + self.first
        vectors = np.zeros((len(obs), self.features), np.float32)
        np.put_along_axis(vectors, columns, 1.0, 1)
        return vectors


class Ones:
    """`OneHot` as a rule; observations have no slopes."""

    parameters: Sequence[nn.Parameter] = ()

    def __init__(self, vectors: OneHot) -> None:
        self.vectors = vectors

    def look(self) -> None:
        """Take no views: there are no parameters."""

    def up(self, values: Array) -> tuple[Array, None]:
        return self.vectors.in_numpy(values), None

    def down(self, slopes: Array, kept: None, inputs: bool, weights: bool) -> Slopes:
        return None, []


def _rules(vectors: OneHot) -> list[Rule]:
    if vectors.features > MOST:
        raise NoRule(f"OneHot of more than {MOST} features")
    return [Ones(vectors)]


FORMS[OneHot] = _rules
