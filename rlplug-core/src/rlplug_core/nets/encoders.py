"""Encoders: from an observation space to a module that turns observations [B, ...] into features [B, F]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets import dense
from rlplug_core.nets.custom import custom
from rlplug_core.nets.initial_weights import initialize, linear
from rlplug_core.nets.keys import KeyEncoder, select_space
from rlplug_core.nets.net import Net, at_layer, list_of
from rlplug_core.nets.normalize import ObservationNorm, PartNorms, RunningNorm
from rlplug_core.nets.number_scale import Scaled, has_images, is_image, number_scale
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.types import MASK, Obs, Space, channels_last

#: A function of the outputs of a layer [B, F], element by element.
Activation: TypeAlias = Callable[[Tensor], Tensor]
#: The in-place forms of activations, for outputs of a layer that nothing else uses.
IN_PLACE: dict[Activation, Activation] = {
    torch.tanh: torch.tanh_,
    torch.relu: torch.relu_,
}
#: The activations by their names in a `Net`.
ACTIVATIONS: dict[str, Activation] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "leaky_relu": nn.functional.leaky_relu,
}


def layer_norm(width: int, net: Net) -> list[nn.LayerNorm]:
    """Return the LayerNorm of one layer, or none without `net.layer_norm`."""
    return [nn.LayerNorm(width)] if net.layer_norm else []


def activations(net: Net) -> list[Activation]:
    """Return the function after each hidden layer."""
    return [ACTIVATIONS[at_layer(net.activation, layer)] for layer in range(len(net.hidden))]


class MLP(nn.Module):
    """Fully connected layers, each followed by the activation, after an optional module that makes vectors [B, inputs].

    The layers are called as functions on their parameters: a module call per layer would cost as much as the layer.
    """

    def __init__(
        self,
        inputs: int,
        net: Net,
        vectors: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.vectors = vectors
        widths = (inputs, *net.hidden)
        layers = [
            linear(width, next_width, net=net, number=number)
            for number, (width, next_width) in enumerate(pairwise(widths))
        ]
        self.linears = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norm for width in net.hidden for norm in layer_norm(width, net))
        self.activations = activations(net)
        in_place = [IN_PLACE.get(function, function) for function in self.activations]
        self.features = widths[-1]
        # The dictionaries, not their content: `torch.func.functional_call` puts other tensors into them.
        parameters: list[Any] = [layer._parameters for layer in layers]
        norms: list[Any] = [norm._parameters for norm in self.norms] or [None] * len(layers)
        self._layers = list(zip(parameters, norms, in_place, strict=True))

    def forward(self, obs: Obs) -> Tensor:
        if self.vectors is not None:
            values: Tensor = self.vectors(obs)
        else:
            values = (
                obs
                if obs.ndim == 2 and obs.dtype is torch.float32
                else obs.reshape(obs.shape[0], -1).float()
            )
        for layer, norm, activate in self._layers:
            values = dense.linear(values, layer["weight"], layer["bias"])
            if norm is not None:
                values = nn.functional.layer_norm(
                    values, norm["weight"].shape, norm["weight"], norm["bias"]
                )
            values = activate(values)
        return values


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel of [B, C, H, W], as in PQN (Gallici et al., 2024)."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values.movedim(1, -1)).movedim(-1, 1)


class Image(nn.Module):
    """A convolutional network for images [B, C, H, W] or [B, H, W, C]; uint8 is scaled to [0, 1] by its bound.

    `types.channels_last` decides between the two. Convolutions have the initial weights and the activation of hidden
    layers; `net.layer_norm` is for the fully connected layers after them, `net.conv_layer_norm` for convolutions.
    `usual_convolutions` returns the default ones.

    Raises:
        UsageError: the images are too small for the layers that `net` names.
    """

    def __init__(self, space: spaces.Box, net: Net) -> None:
        super().__init__()
        self.channels_last = channels_last(space.shape)
        shape = (space.shape[2], *space.shape[:2]) if self.channels_last else space.shape
        # Older versions read an image with three equal sides as channels first; their weights have the same shapes, but
        # lack this buffer, so they are not loaded by mistake.
        if len(set(space.shape)) == 1:
            self.register_buffer("has_channels_last", torch.ones(()))
        self.scale = number_scale(space)
        kernels = list(zip(net.channels, net.kernels, net.strides, strict=True))
        kernels = kernels or usual_convolutions(*shape[1:])
        _check_fit(min(shape[1:]), kernels)
        self.convolutions = nn.ModuleList(_convolutions(shape[0], kernels, net))
        norms = [ChannelNorm(width) for width, _, _ in kernels if net.conv_layer_norm]
        self.norms = nn.ModuleList(norms)
        self.large = min(shape[1:]) >= 36
        self.activation = ACTIVATIONS[list_of(net.activation)[0]]
        with torch.no_grad():
            size = self._convolve(torch.zeros(1, *shape)).shape[1]
        self.dense = MLP(size, net)
        self.features = self.dense.features

    def forward(self, obs: Tensor) -> Tensor:
        image = obs.permute(0, 3, 1, 2) if self.channels_last else obs
        # With channels last, the gradient of a large image's first layer takes a third of the time.
        order = torch.channels_last if self.large and image.is_cpu else torch.preserve_format
        values = image.to(torch.float32, copy=self.scale != 1, memory_format=order)
        return self.dense(self._convolve(values if self.scale == 1 else values.mul_(self.scale)))

    def _convolve(self, values: Tensor) -> Tensor:
        activate = IN_PLACE.get(self.activation, self.activation)
        for number, convolution in enumerate(self.convolutions):
            values = convolution(values)
            values = activate(self.norms[number](values) if self.norms else values)
        return values.flatten(1)


def _convolutions(
    inputs: int,
    kernels: list[tuple[int, int, int]],
    net: Net,
) -> list[nn.Conv2d]:
    """Return convolutions with their initial weights, from channels, kernel size and stride of each."""
    widths = pairwise([inputs, *(width for width, _, _ in kernels)])
    layers = [
        nn.Conv2d(*pair, kernel, stride)
        for pair, (_, kernel, stride) in zip(widths, kernels, strict=True)
    ]
    for layer in layers:
        initialize(layer, net, number=0)
    return layers


def usual_convolutions(height: int, width: int) -> list[tuple[int, int, int]]:
    """Return channels, kernel size and stride of the default convolutions for images of this size.

    Images of at least 36 pixels a side get the three convolutions of DQN (Mnih et al., 2015). Grids of less than 16 get
    two with stride 1, others two with stride 2. More convolutions follow while more than 100 pixels are left,
    so that the dense layer after them does not grow with the image.
    """
    side = min(height, width)
    if side >= 36:
        layers = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    elif side >= 16:
        layers = [(16, 4, 2), (32, 3, 2)]
    else:
        layers = [(16, 3, 1), (32, 3, 1)]
    for _, kernel, stride in layers:
        height = (height - kernel) // stride + 1
        width = (width - kernel) // stride + 1
    while height * width > 100 and min(height, width) >= 3:
        layers.append((layers[-1][0], 3, 2))
        height = (height - 3) // 2 + 1
        width = (width - 3) // 2 + 1
    return layers


def _check_fit(side: int, kernels: list[tuple[int, int, int]]) -> None:
    """Raise UsageError if the kernel of a convolution is larger than its input."""
    size = side
    for number, (_, kernel, stride) in enumerate(kernels):
        if kernel > size:
            raise UsageError(
                f"net.kernels: the kernel of convolution {number + 1} is {kernel} x {kernel}, but its input has only "
                f"{size} pixels a side, from images of {side}; choose smaller kernels or strides"
            )
        size = (size - kernel) // stride + 1


class Vector(nn.Module):
    """Turns arrays of any shape into float vectors [B, F]."""

    def forward(self, obs: Tensor) -> Tensor:
        return (
            obs
            if obs.ndim == 2 and obs.dtype is torch.float32
            else obs.reshape(obs.shape[0], -1).float()
        )


class Concat(nn.Module):
    """Encodes each part of a Dict observation by a separate encoder, and concatenates the features."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        self.names = list(parts)
        # A ModuleDict would refuse names such as "keys" and "arm.angle".
        self.parts = nn.ModuleList(parts.values())

    def forward(self, obs: dict[str, Obs]) -> Tensor:
        return torch.cat(
            [part(obs[name]) for name, part in zip(self.names, self.parts, strict=True)], dim=1
        )


class Normalized(nn.Module):
    """An encoder that reads normalized observations."""

    def __init__(self, norm: ObservationNorm, encoder: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.encoder = encoder

    def forward(self, obs: object) -> Tensor:
        return self.encoder(self.norm(obs))


def encoder(
    space: Space,
    net: Net,
    norm: ObservationNorm | None = None,
    *,
    scales: bool = True,
) -> tuple[nn.Module, int]:
    """Make the encoder for an observation space; return it and its number of features.

    Images (three dimensions) go through convolutions. Discrete and MultiDiscrete numbers become one-hot vectors, other
    arrays are flattened, and the parts of a Dict are encoded separately; these vectors go through the hidden layers of
    `net`. Bytes and other small integers are divided by their bound, unless `scales` is false. With `net.normalize_obs`
    vectors are normalized instead, by `norm` if the network shares one. With `net.obs` the encoder reads only these
    keys of a Dict. `net.factory` replaces all of this.

    Raises:
        UsageError: the space has no encoder, no image for the convolutions of `net`, or not the keys of `net.obs`; or
            `net.shared` is set for a network that cannot share a trunk.
        PluginError: the factory fails, or its module returns another number of features than the factory.
    """
    check_not_shared(net)
    norm = norm or observation_norm(space, net)
    part = select_space(space, net.obs)
    inner = replace(net, normalize_obs=False, obs=())
    module, features = _encoder(part, inner, norm, scales and norm is None)
    module = module if norm is None else Normalized(norm, module)
    return (KeyEncoder(net.obs, module) if net.obs else module), features


def check_not_shared(net: Net) -> None:
    """Raise UsageError if `net` lets networks share layers; the caller trains them separately."""
    if net.shared:
        raise UsageError(
            "net.shared puts policy and critic on one trunk, and this algorithm trains them separately; leave it at "
            "false, or use a2c, a3c, ppo, impala, appo, vac or vpg"
        )


def _encoder(
    space: Space,
    net: Net,
    norm: ObservationNorm | None,
    scales: bool,
) -> tuple[nn.Module, int]:
    """Make the encoder after `norm`, which also normalizes the trial observations of a factory's module."""
    if net.factory is not None:
        return custom(space, net, norm)
    if is_image(space):
        image = Image(space, net)
        return image, image.features
    if (net.channels or net.conv_layer_norm) and not has_images(space):
        raise UsageError(
            "net.channels, kernels, strides and conv_layer_norm are for images, and "
            f"{space} has none; leave them out"
        )
    vectors, width = _vectors(space, net, scales)
    layers = MLP(width, net, None if isinstance(vectors, Vector) else vectors)
    return layers, layers.features


def observation_norm(space: Space, net: Net) -> ObservationNorm | None:
    """Make the normalization of the observations of a space; None without `net.normalize_obs`, or without Box vectors.

    Images, one-hot numbers, action masks and MultiBinary are not normalized.
    """
    norm = _norm(select_space(space, net.obs)) if net.normalize_obs else None
    return None if norm is None else ObservationNorm(space, norm, net.obs)


def observation_norms(
    space: Space,
    net: Net,
    critic_net: Net,
) -> tuple[ObservationNorm | None, ObservationNorm | None]:
    """Make the normalization of the observations of a policy and its critic: one for both if they read the same keys.

    Args:
        space: of the observations.
        net, critic_net: options of the policy's and of the critic's network.
    """
    norm = observation_norm(space, net)
    same = (net.obs, net.normalize_obs) == (critic_net.obs, critic_net.normalize_obs)
    return norm, norm if same else observation_norm(space, critic_net)


def _norm(space: Space) -> RunningNorm | PartNorms | None:
    if isinstance(space, spaces.Dict):
        norms = {name: _norm(part) for name, part in space.spaces.items() if name != MASK}
        part_norms = {name: norm for name, norm in norms.items() if norm is not None}
        return PartNorms(part_norms) if part_norms else None
    return (
        RunningNorm(space.shape) if isinstance(space, spaces.Box) and not is_image(space) else None
    )


def _vectors(space: Space, net: Net, scales: bool) -> tuple[nn.Module, int]:
    """Make the module that turns observations into vectors, before the hidden layers; return it and their size."""
    if isinstance(space, spaces.Dict):
        encoders = {
            name: _vectors(part, net, scales) for name, part in space.spaces.items() if name != MASK
        }
        modules = {name: module for name, (module, _) in encoders.items()}
        return Concat(modules), sum(size for _, size in encoders.values())
    if is_image(space):
        return encoder(space, net)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        one_hot = OneHot(space)
        return one_hot, one_hot.features
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        scale = number_scale(space) if scales else 1.0
        return (Vector() if scale == 1 else Scaled(scale)), int(np.prod(space.shape))
    raise UsageError(
        f"no encoder for observations in {space}; flatten it with a wrapper or bring your own network"
    )
