"""Initial weights of layers, by the options of a network."""

from __future__ import annotations

import torch
from torch import nn

from rlplug_core.nets.net import Net, at_layer


def linear(
    inputs: int,
    outputs: int,
    gain: float | None = None,
    net: Net | None = None,
    number: int = -1,
) -> nn.Linear:
    """Return a linear layer with initial weights.

    Args:
        inputs, outputs: the numbers of features.
        gain: scale of the weights; None for a hidden layer, which has the gain of `net`.
        net: options of the network; without them the weights are orthogonal (Saxe et al., 2014, arXiv:1312.6120), and
            the bias is zero.
        number: the number of the hidden layer, for a list in `net.init`.
    """
    layer = nn.Linear(inputs, outputs)
    initialize(layer, net or Net(), gain, number)
    return layer


@torch.no_grad()
def initialize(
    layer: nn.Linear | nn.Conv2d,
    net: Net,
    gain: float | None = None,
    number: int = -1,
) -> None:
    """Set the initial weights of a layer; a convolution gets those of a linear layer over its window.

    Args:
        layer: the layer.
        net: options of the network.
        gain: scale of the weights; None for a hidden layer, which has the gain of `net`.
        number: the number of the hidden layer; convolutions have the method of the first one, output layers that of the
            last.
    """
    method = at_layer(net.init, number)
    if method == "torch":
        return
    gain = (net.gain or 2**0.5) if gain is None else gain
    if method == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain)
    elif method == "xavier_uniform":
        nn.init.xavier_uniform_(layer.weight, gain)
    else:  # with a gain of √2 the uniform form of He et al. (2015, arXiv:1502.01852)
        bound = gain * (3 / layer.weight[0].numel()) ** 0.5
        nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def initialize_outputs(module: nn.Module, net: Net) -> None:
    """Set the initial weights of the layers that feed an action head, if options of `net` change them."""
    if at_layer(net.init, -1) == "orthogonal" and net.output_gain is None:
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
            initialize(layer, net, net.output_gain or 0.01)
