"""Action heads: the distributions over actions that a network's outputs describe.

Actions are sampled in NumPy on the host, next to the environments; losses get log-probabilities and entropies in torch.
Heads are arithmetic without checks: torch's validated `Categorical` takes 2.6 times as long.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import gymnasium.spaces as spaces
from torch import nn

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import parts
from rlplug_core.nets.heads.bernoulli import Bernoulli
from rlplug_core.nets.heads.categorical import Categorical, MultiCategorical
from rlplug_core.nets.heads.gaussian import Gaussian, LogStd
from rlplug_core.nets.heads.masks import ILLEGAL, check_mask, masked
from rlplug_core.nets.heads.product import ParallelHeads, Product
from rlplug_core.nets.heads.protocol import Head, HeadFactory
from rlplug_core.nets.heads.tanh import SquashedGaussian, check_bounded
from rlplug_core.nets.initial_weights import linear
from rlplug_core.types import Space

#: The action spaces that `head` supports.
SPACES = ("Discrete", "MultiDiscrete", "MultiBinary", "Box", "Dict")


def head(
    space: Space,
    features: int,
    gain: float = 0.01,
    std: Literal["free", "state"] = "free",
    squash: bool = False,
    log_std: float = 0.0,
) -> tuple[Head, nn.Module]:
    """Return the head for an action space and the layer that feeds it from features [B, F].

    Args:
        gain: of the layer's initial weights.
        std: whether a Gaussian's deviation is a separate parameter or depends on the state.
        squash: whether a Gaussian's actions go through a tanh.
        log_std: initial log standard deviation, if it is a parameter.

    Raises:
        UsageError: the space has no head, or `squash` is given and it has no finite bounds.
    """
    if isinstance(space, spaces.Dict) and parts(space):
        make = partial(head, features=features, gain=gain, std=std, squash=squash, log_std=log_std)
        heads, layers = zip(*(make(part.space) for part in parts(space)), strict=True)
        return Product(space, heads), ParallelHeads(layers)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        if squash:
            check_bounded(space)
        gaussian = SquashedGaussian(space.shape) if squash else Gaussian(space.shape)
        if std == "state":
            return gaussian, linear(features, gaussian.size, gain)
        return gaussian, nn.Sequential(
            linear(features, gaussian.dims, gain), LogStd(gaussian.dims, log_std)
        )
    discrete = _discrete_head(space)
    return discrete, linear(features, discrete.size, gain)


def _discrete_head(space: Space) -> Head:
    """Return the head of a space of choices or switches."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space.shape)
    raise UsageError(
        f"no policy head for actions in {space}; Discrete, MultiDiscrete, MultiBinary, floating-point Box and Dicts of "
        "these have one"
    )


def squashed(
    space: Space,
    features: int,
    gain: float = 0.01,
) -> tuple[Head, nn.Module]:
    """Return the squashed Gaussian for a Box of finite bounds, with a state-dependent deviation, and its layer.

    Raises:
        UsageError: the space is not a Box, or has no finite bounds.
    """
    check_bounded(space)
    return head(space, features, gain, std="state", squash=True)


__all__ = [
    "ILLEGAL",
    "SPACES",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Head",
    "HeadFactory",
    "LogStd",
    "MultiCategorical",
    "ParallelHeads",
    "Product",
    "SquashedGaussian",
    "check_bounded",
    "check_mask",
    "head",
    "masked",
    "squashed",
]
