"""Networks that read some keys of a Dict observation: `net.obs` and `critic_net.obs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
from torch import Tensor, nn

from rlplug_core.errors import UsageError, quote_all
from rlplug_core.types import MASK, Obs, Space


def select_space(space: Space, keys: Sequence[str]) -> Space:
    """Return the space of the result of `select`: the space of one key, or a Dict of several.

    Args:
        space: of whole observations.
        keys: of a Dict; none for the whole space.

    Raises:
        UsageError: the space has no such key, or is not a Dict.
    """
    if not keys:
        return space
    if not isinstance(space, spaces.Dict):
        raise UsageError(
            f"net.obs and critic_net.obs choose keys of Dict observations, and these are {space}; leave them out"
        )
    known = [key for key in space.spaces if key != MASK]
    for key in keys:
        if key not in known:
            raise UsageError(
                f"net.obs or critic_net.obs has '{key}', which is not a key of the observations; the keys are "
                f"{quote_all(known)}"
            )
    return space[keys[0]] if len(keys) == 1 else spaces.Dict({key: space[key] for key in keys})


def select(obs: Obs, keys: Sequence[str]) -> Obs:
    """Return the input of a network with these keys: the part of one key, or a dictionary of several.

    Args:
        obs: [B, ...] observations, or [T, N, ...] ones.
        keys: of a Dict; none for all of it.
    """
    if not keys:
        return obs
    return obs[keys[0]] if len(keys) == 1 else {key: obs[key] for key in keys}


class KeyReader(nn.Module):
    """The base of modules that read some keys of a Dict observation, with an encoder for them."""

    def __init__(self, keys: Sequence[str], encoder: nn.Module) -> None:
        super().__init__()
        self.keys = tuple(keys)
        self.encoder = encoder


class KeyEncoder(KeyReader):
    """An encoder of some keys of a Dict observation."""

    def forward(self, obs: dict[str, Any]) -> Tensor:
        return self.encoder(select(obs, self.keys))


class KeyVectors(KeyReader):
    """An encoder of a dictionary with `obs` and `action`; of `obs` it reads some keys."""

    def forward(self, both: dict[str, Any]) -> Tensor:
        return self.encoder({**both, "obs": select(both["obs"], self.keys)})
