"""The residual convolutional network of IMPALA (Espeholt et al., 2018, arXiv:1802.01561, figure 3, right)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets.net import Net
from rlplug_core.types import Space

#: The channels of the three stages, and the number of features.
CHANNELS = (16, 32, 32)
FEATURES = 256


class Residual(nn.Module):
    """A residual block: images [B, C, H, W] plus two convolutions of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        residual: Tensor = self.second(self.first(image.relu()).relu())
        return image + residual


class ImpalaCNN(nn.Module):
    """Images [B, H, W, C] to features [B, 256]: three stages of a convolution, a max pool and two residual blocks.

    Args:
        height, width, channels: the size of the images.
        scale: factor that brings their numbers into [0, 1].
    """

    def __init__(
        self,
        height: int,
        width: int,
        channels: int,
        scale: float,
    ) -> None:
        super().__init__()
        self.scale = scale
        stages: list[nn.Module] = []
        inputs = channels
        for size in CHANNELS:
            stages += [nn.Conv2d(inputs, size, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            stages += [Residual(size), Residual(size)]
            inputs = size
        self.stages = nn.Sequential(*stages)
        with torch.no_grad():
            pixels = self.stages(torch.zeros(1, channels, height, width)).numel()
        self.output = nn.Linear(pixels, FEATURES)

    def forward(self, obs: Tensor) -> Tensor:
        image = obs.permute(0, 3, 1, 2).to(torch.float32) * self.scale
        features: Tensor = self.output(self.stages(image).relu().flatten(1))
        return features.relu()


def impala_cnn(space: Space, net: Net) -> tuple[nn.Module, int]:
    """Return the network for images [H, W, C] and its number of features.

    Raises:
        UsageError: the observations are not images of this form.
    """
    shape = space.shape or ()
    if len(shape) != 3:
        raise UsageError(
            f"impala-cnn takes images [height, width, channels], and the observations are {space}"
        )
    scale = 1 / 255 if space.dtype == np.uint8 else 1.0
    return ImpalaCNN(*shape, scale), FEATURES
