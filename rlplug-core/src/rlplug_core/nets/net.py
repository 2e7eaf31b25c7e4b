"""The options of a network in a configuration."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias, TypeVar

from rlplug_core.config.options import Count, Importable, Positive
from rlplug_core.errors import UsageError

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"]
Init: TypeAlias = Literal["orthogonal", "xavier_uniform", "kaiming_uniform", "torch"]
W = TypeVar("W", bound=str)


@dataclass(frozen=True)
class Net:
    """Layers and their initial weights; the observation space decides the kind of encoder, unless `factory` makes one.

    Raises:
        ValueError: options that do not go together.
    """

    hidden: tuple[Count, ...] = (64, 64)  # units of each hidden layer
    # activation of hidden layers, one for all or one for each
    activation: Activation | tuple[Activation, ...] = "tanh"
    layer_norm: bool = False  # apply LayerNorm before the activation of each hidden layer
    # initial weights, one method for all layers or one for each hidden layer
    init: Init | tuple[Init, ...] = "orthogonal"
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
    # initial log of the standard deviation with std free; bounded actions are scaled to [-1, 1]
    log_std_init: float = 0.0
    squash: bool = False  # put a Gaussian's actions through a tanh; sac, tqc and crossq always do
    # encoder: a plugin such as impala-cnn, or your function, ./my_net.py:make
    factory: Importable | None = None
    obs: tuple[str, ...] = ()  # keys of a Dict observation that it reads; default: all
    # apply LayerNorm over the channels before the activation of each convolution
    conv_layer_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("activation", "init"):
            self._check_length(name, getattr(self, name))
        if "torch" in list_of(self.init) and (self.gain, self.output_gain) != (None, None):
            raise ValueError(
                "init torch leaves weights as torch makes them; leave gain and output_gain at none"
            )
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            raise ValueError(
                "channels, kernels and strides must have the same length, one number per convolution"
            )
        if self.std == "state" and self.log_std_init:
            raise ValueError(
                "log_std_init sets a parameter that std state does not have; leave it at 0"
            )

    def _check_length(self, name: str, value: str | tuple[str, ...]) -> None:
        """Raise ValueError if a list does not have one item for each hidden layer."""
        if not isinstance(value, str) and len(value) != len(self.hidden):
            raise ValueError(
                f"{name} has a list of {len(value)} for {len(self.hidden)} hidden layers; write one for each layer, or "
                "one for all without a list"
            )

    def part(self, layers: slice) -> Net:
        """Return the options of a network that has only these of the hidden layers."""
        return replace(
            self,
            hidden=self.hidden[layers],
            activation=_part(self.activation, layers),
            init=_part(self.init, layers),
        )

    def default_encoder(self) -> Net:
        """Return the options without `factory` and without the options of convolutions."""
        return replace(
            self, factory=None, channels=(), kernels=(), strides=(), conv_layer_norm=False
        )

    def check_gaussian(self, free: bool) -> None:
        """Raise UsageError if options of a Gaussian are set, unless the network has a Gaussian to set (`free`)."""
        changed = self._non_defaults("std", "log_std_init", "squash")
        if changed and not free:
            raise UsageError(
                f"net.{changed[0]} sets the Gaussian of on-policy algorithms for Box actions, such as ppo and a2c, "
                f"and this network has none; leave net.{changed[0]} at its default"
            )

    def check_critic(self) -> None:
        """Raise UsageError if an option of policies is set for a critic's own network."""
        changed = self._non_defaults("std", "log_std_init", "squash", "output_gain")
        if changed:
            raise UsageError(
                f"{changed[0]} is an option of policies, and a critic's own network has no actions; leave "
                f"critic_net.{changed[0]} at its default"
            )

    def _non_defaults(self, *names: str) -> list[str]:
        """Return the names of options that are not at their defaults."""
        return [name for name in names if getattr(self, name) != getattr(Net, name)]


@dataclass(frozen=True)
class CriticNet:
    """The options of a critic's network that differ from those of `net`."""

    obs: tuple[str, ...] = ()  # keys of a Dict observation that it reads; default: as net
    hidden: tuple[Count, ...] | None = None  # units of each hidden layer; default: as net
    # activation of hidden layers, one for all or one for each; default: as net
    activation: Activation | tuple[Activation, ...] | None = None
    layer_norm: bool | None = None  # LayerNorm in its hidden layers; default: as net
    # initial weights, one method for all layers or one for each hidden layer; default: as net
    init: Init | tuple[Init, ...] | None = None
    gain: Positive | None = None  # gain of the initial weights of hidden layers; default: as net
    # channels of each convolution; default: as net, or the default of net with its own observations
    channels: tuple[Count, ...] | None = None
    kernels: tuple[Count, ...] | None = None  # kernel size of each convolution
    strides: tuple[Count, ...] | None = None  # stride of each convolution
    normalize_obs: bool | None = None  # normalize its vector observations; default: as net
    # encoder, as of net; default: as net, or none with its own observations
    factory: Importable | None = None
    # LayerNorm over the channels of its convolutions; default: as net, or off with own observations
    conv_layer_norm: bool | None = None

    def over(self, net: Net) -> Net:
        """Return the options of the critic's network: those that are set here, the others as in `net`.

        A critic with its own observations has the default encoder for them, not the one that `net` names.

        Raises:
            UsageError: the options do not go together, or the critic has no separate network because of `net.shared`.
        """
        options = self.differences()
        if not options:
            return replace(net, shared=False)
        if net.shared:
            raise UsageError(
                f"net.shared puts policy and critic on one trunk, and critic_net.{min(options)} needs a separate "
                "network for the critic; leave one of them out"
            )
        if self.obs:
            net = net.default_encoder()
        try:
            return replace(net, **options)  # type: ignore[arg-type]  # fields of the same types
        except ValueError as error:
            raise UsageError(f"critic_net: {error}") from error

    def differences(self) -> dict[str, object]:
        """Return the options that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["obs"] = self.obs or None
        return {name: value for name, value in values.items() if value is not None}


def list_of(value: W | tuple[W, ...]) -> tuple[W, ...]:
    """Return the items of an option that is one word or a list."""
    return (value,) if isinstance(value, str) else value


def at_layer(value: W | tuple[W, ...], layer: int) -> W:
    """Return the item of one hidden layer, from an option that is one word for all layers or a list."""
    return value if isinstance(value, str) else value[layer]


def _part(value: W | tuple[W, ...], layers: slice) -> W | tuple[W, ...]:
    """Return the items of some hidden layers; if there are none, the first item, which convolutions use."""
    return value if isinstance(value, str) else value[layers] or value[0]
