"""The residual network of SimBa (Lee et al., 2024, arXiv:2410.09754), for any algorithm: `--net.factory simba`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gymnasium.spaces as spaces
from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class SimbaConfig(rl.Config):
    """Options of the network."""

    width: rl.Count = 128  # features of each residual block
    blocks: rl.Count = 1  # number of residual blocks
    expansion: rl.Count = 4  # hidden units of a block, as a multiple of width


class Block(nn.Module):
    """The input [B, width] plus a network with one hidden layer of the normalized input (section 4.2, eq. 4)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, width)
        for layer in (self.hidden, self.output):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        added: Tensor = features + self.output(self.hidden(self.norm(features)).relu())
        return added


class Simba(nn.Module):
    """Vectors, or a Dict of them, to features [B, width]: a dense layer, residual blocks, LayerNorm (section 4)."""

    def __init__(self, vectors: nn.Module, inputs: int, config: SimbaConfig) -> None:
        super().__init__()
        self.vectors = vectors
        self.embedding = nn.Linear(inputs, config.width)
        nn.init.orthogonal_(self.embedding.weight)
        nn.init.zeros_(self.embedding.bias)
        hidden = config.width * config.expansion
        self.blocks = nn.ModuleList(Block(config.width, hidden) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, obs: rl.Obs) -> Tensor:
        features = self.embedding(self.vectors(obs))
        for block in self.blocks:
            features = block(features)
        normalized: Tensor = self.norm(features)
        return normalized


class MakeSimba:
    """Residual blocks with LayerNorm for vectors; add `--net.normalize-obs` for SimBa's running normalization."""

    Config = SimbaConfig
    #: Critics of continuous actions give it observation and action together.
    takes_actions: ClassVar[bool] = True

    def __call__(
        self, space: spaces.Space[object], net: rl.Net, config: SimbaConfig
    ) -> tuple[nn.Module, int]:
        """Return the network for a space, and its number of features.

        Raises:
            ValueError: an observation, or a part of it, is not a vector.
        """
        vectors, inputs = rl.encoder(space, rl.Net(hidden=()))
        if list(vectors.parameters()):
            raise ValueError(f"simba takes vectors, and not {space}")
        return Simba(vectors, inputs, config), config.width


simba = MakeSimba()
