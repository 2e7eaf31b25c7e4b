"""Dictionaries of actions: a head for each part, all independent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.arrays import cast, namespace
from rlplug_core.nets.actions import parts
from rlplug_core.nets.heads.protocol import Head
from rlplug_core.types import Array


@dataclass(frozen=True, slots=True)
class Member:
    """The head of one part, and its columns of outputs, noise and actions."""

    head: Head
    outputs: slice
    noise: slice
    action: slice
    shape: tuple[int, ...]
    is_choice: bool

    def host_action(self, action: Array) -> Array:
        """Return this part of actions [B, k], as its head takes it."""
        part = action[:, self.action].reshape(-1, *self.shape)
        return part.astype(np.int64) if self.is_choice else part

    def device_action(self, action: Tensor) -> Tensor:
        """Return this part of actions [B, k] on a device, as its head takes it."""
        part = action[:, self.action].reshape(-1, *self.shape)
        return part.long() if self.is_choice else part


class Product:
    """Independent distributions of the parts of a Dict; actions are columns [B, k], as in `rlplug_core.nets.actions`.

    Args:
        space: the Dict, which may be nested.
        heads: one for each of its parts, in their order.

    Attributes:
        columns: [M] the outputs that are logits of choices, in the order of a mask's entries.
    """

    def __init__(self, space: spaces.Dict, heads: Sequence[Head]) -> None:
        self.size = 0
        self.members: list[Member] = []
        columns: list[int] = []
        width = 0
        generator = np.random.default_rng(0)
        for part, head in zip(parts(space), heads, strict=True):
            outputs = slice(self.size, self.size + head.size)
            noise = slice(width, width + head.noise(generator, (0,)).shape[-1])
            is_choice = isinstance(part.space, spaces.Discrete | spaces.MultiDiscrete)
            shape = part.space.shape or ()
            self.members.append(
                Member(
                    head,
                    outputs=outputs,
                    noise=noise,
                    action=part.columns,
                    shape=shape,
                    is_choice=is_choice,
                )
            )
            columns += range(outputs.start, outputs.stop) if is_choice else ()
            self.size = outputs.stop
            width = noise.stop
        self.columns = torch.tensor(columns, dtype=torch.int64)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        return _concatenate([member.head.noise(generator, shape) for member in self.members])

    def sample(self, outputs: Array, noise: Array) -> Array:
        return _columns(
            m.head.sample(outputs[:, m.outputs], noise[..., m.noise]) for m in self.members
        )

    def mode(self, outputs: Array) -> Array:
        return _columns(m.head.mode(outputs[:, m.outputs]) for m in self.members)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        log_probs = [
            m.head.host_log_prob(outputs[:, m.outputs], m.host_action(action)) for m in self.members
        ]
        return np.sum(log_probs, 0)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return _sum(
            m.head.log_prob(outputs[:, m.outputs], m.device_action(action)) for m in self.members
        )

    def entropy(self, outputs: Tensor) -> Tensor:
        return _sum(m.head.entropy(outputs[:, m.outputs]) for m in self.members)

    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        both = [
            m.head.log_prob_and_entropy(outputs[:, m.outputs], m.device_action(action))
            for m in self.members
        ]
        return _sum(log_prob for log_prob, _ in both), _sum(entropy for _, entropy in both)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        return _sum(m.head.kl(outputs[:, m.outputs], other[:, m.outputs]) for m in self.members)


class ParallelHeads(nn.Module):
    """Layers on the same features; their outputs are concatenated."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([layer(features) for layer in self.layers], -1)


def _columns(actions: Iterable[Array]) -> Array:
    """Return actions [B, ...] of the parts as columns [B, k]."""
    return _concatenate([cast(each.reshape(len(each), -1), np.float32) for each in actions])


def _concatenate(columns: Sequence[Array]) -> Array:
    """Concatenate arrays, or tensors, along their last dimension."""
    return namespace(columns[0]).concatenate(columns, -1)


def _sum(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum(0)
