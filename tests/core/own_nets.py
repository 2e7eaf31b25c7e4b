"""Networks of a user for `--net ./own_nets.py:make`: good ones, and one for each mistake."""

from __future__ import annotations

from math import prod
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rlplug_core.nets.net import Net

HERE = __file__


class Own(nn.Module):
    """Two layers, the second without a bias; concatenates the parts of a dictionary."""

    def __init__(self, space: spaces.Space[Any], features: int = 6) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width(space), 12), nn.SiLU(), nn.Linear(12, features, bias=False))

    def forward(self, obs: Any) -> Tensor:
        parts = list(obs.values()) if isinstance(obs, dict) else [obs]
        features: Tensor = self.body(torch.cat([part.reshape(len(part), -1).float() for part in parts], 1))
        return features.tanh()


def width(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Dict):
        return sum(map(width, space.spaces.values()))
    return prod(space.shape or ())


def make(space: spaces.Space[Any], net: Net) -> tuple[nn.Module, int]:
    return Own(space), 6


def linear(space: spaces.Space[Any], net: Net) -> tuple[nn.Module, int]:
    return nn.Linear(width(space), 6), 6


class Partly(nn.Module):
    """One frozen layer, one unused layer, and one layer that is applied twice to every row."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, 12)
        self.unused = nn.Linear(3, 2)
        self.each = nn.Linear(6, 3)
        self.frozen.requires_grad_(False)

    def forward(self, obs: Any) -> Tensor:
        features: Tensor = self.each(self.frozen(obs.float().flatten(1)).unflatten(1, (2, 6)).tanh()).flatten(1)
        return features


def partly(space: spaces.Space[Any], net: Net) -> tuple[nn.Module, int]:
    return Partly(width(space)), 6


def wrong_number(space: spaces.Space[Any], net: Net) -> tuple[nn.Module, int]:
    return Own(space), 7


def images_only(space: spaces.Space[Any], net: Net) -> tuple[nn.Module, int]:
    return nn.Conv2d(3, 8, 8), 8


def no_number(space: spaces.Space[Any], net: Net) -> Any:
    return Own(space)


def no_module(space: spaces.Space[Any], net: Net) -> Any:
    return 6, 6


def no_tensor(space: spaces.Space[Any], net: Net) -> Any:
    return nn.LSTM(width(space), 6), 6


def raises(space: spaces.Space[Any], net: Net) -> Any:
    raise KeyError("thing")


number = 3
