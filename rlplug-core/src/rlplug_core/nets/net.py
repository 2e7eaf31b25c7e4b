"""The part of a configuration that describes a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_core.config.options import Count, Importable, Positive
from rlplug_core.errors import UsageError


@dataclass(frozen=True)
class Net:
    """Layers and their initial weights; the kind of encoder follows from the observation space, or is a user's own.

    Raises:
        ValueError: fields that do not go together.
    """

    hidden: tuple[Count, ...] = (64, 64)  # units of each hidden layer
    # activation of hidden layers
    activation: Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"] = "tanh"
    layer_norm: bool = False  # apply LayerNorm before the activation of each hidden layer
    # initial weights
    init: Literal["orthogonal", "xavier_uniform", "kaiming_uniform", "torch"] = "orthogonal"
    # gain of the initial weights of hidden layers; default: the square root of 2
    gain: Positive | None = None
    # gain of the last layer; default: 0.01 for a policy, 1 for action values
    output_gain: Positive | None = None
    # channels of each convolution; default: 32,64,64, for small images 16,32
    channels: tuple[Count, ...] = ()
    kernels: tuple[Count, ...] = ()  # kernel size of each convolution, as many as channels
    strides: tuple[Count, ...] = ()  # stride of each convolution, as many as channels
    # share the hidden layers between policy and critic, if one loss trains both
    shared: bool = False
    # normalize vector observations by their running mean and standard deviation
    normalize_obs: bool = False
    # standard deviation of a Gaussian: a parameter, or an output of the network
    std: Literal["free", "state"] = "free"
    # initial log of that parameter, in units in which bounded actions are from -1 to 1
    log_std_init: float = 0.0
    squash: bool = False  # put a Gaussian's actions through a tanh; sac, tqc and crossq always do
    factory: Importable | None = (
        None  # encoder: a plugin such as impala-cnn, or your function, ./my_net.py:make
    )

    def __post_init__(self) -> None:
        if self.init == "torch" and (self.gain, self.output_gain) != (None, None):
            raise ValueError(
                "init torch leaves weights as torch makes them; leave gain and output_gain at none"
            )
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            raise ValueError(
                "channels, kernels and strides need as many numbers each, one per convolution"
            )
        if self.std == "state" and self.log_std_init:
            raise ValueError(
                "log_std_init is about a parameter that std state does not have; leave it at 0"
            )

    def check_gaussian(self, free: bool) -> None:
        """Raise UsageError if an option of a network's Gaussian is set that is not `free` to choose."""
        asked = self._non_defaults("std", "log_std_init", "squash")
        if asked and not free:
            raise UsageError(
                f"net.{asked[0]} is about the Gaussian of policies for Box actions that leave the choice (ppo, a2c and "
                f"other on-policy ones), and this network has none; leave net.{asked[0]} at its default"
            )

    def check_critic(self) -> None:
        """Raise UsageError if a critic's own network has an option that only policies have."""
        asked = self._non_defaults("std", "log_std_init", "squash", "output_gain")
        if asked:
            raise UsageError(
                f"{asked[0]} is about actions, which a policy gives and a critic's own network does not; leave "
                f"critic_net.{asked[0]} at its default"
            )

    def _non_defaults(self, *names: str) -> list[str]:
        """Return those of the options that are not at their defaults."""
        return [name for name in names if getattr(self, name) != getattr(Net, name)]
