"""The part of a configuration that describes a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_core.config import Count


@dataclass(frozen=True)
class Net:
    """Sizes and activation; the kind of encoder follows from the observation space."""

    hidden: tuple[Count, ...] = (64, 64)  # units of each hidden layer
    activation: Literal["tanh", "relu"] = "tanh"  # between layers
    shared: bool = False  # policy and critic on one trunk, where both are trained by one loss
    normalise: bool = False  # scale observations by their running mean and deviation; images and Discrete stay
    std: Literal["free", "state"] = "free"  # deviation of a Gaussian without a tanh: a free parameter or the state's
