"""The inputs of policies of Stable-Baselines3: convolutions, dictionaries, classes, and the means of `VecNormalize`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError, plain
from rlplug_core.export.inert_pickle import Record, array_of, read_pickle
from rlplug_core.types import Array, Space

#: The strides of the convolutions of `NatureCNN`, and the numbers of their layers.
STRIDES = {0: 4, 2: 2, 4: 1}
#: The most bytes of `vecnormalize.pkl`.
MOST_STATISTICS = 2**26


@dataclass(frozen=True)
class Statistics:
    """The running means and variances that `VecNormalize` saved.

    Attributes:
        moments: mean and variance by key of the observation; the key is "" for an observation that is not a dictionary.
        clip: the bound of normalized observations.
        epsilon: added to the variance.
    """

    moments: Mapping[str, tuple[Array, Array]]
    clip: float
    epsilon: float


def read_statistics(data: bytes) -> Statistics:
    """Read the file that `VecNormalize.save` wrote, without executing it.

    Raises:
        ValueError: it is not such a file.
    """
    record = read_pickle(data)
    if not isinstance(record, Record) or not record.name.endswith(".VecNormalize"):
        raise ValueError("it has no VecNormalize")
    if not isinstance(record.state, dict):
        raise ValueError("its VecNormalize has no state")
    state = record.state
    clip = state.get("clip_obs")
    epsilon = state.get("epsilon")
    if not isinstance(clip, float | int) or not isinstance(epsilon, float | int):
        raise ValueError("clip_obs or epsilon is missing")
    if not state.get("norm_obs"):
        return Statistics({}, float(clip), float(epsilon))
    means = state.get("obs_rms")
    named = means if isinstance(means, dict) else {"": means}
    moments = {key: _moments(value) for key, value in named.items()}
    return Statistics(moments, float(clip), float(epsilon))


def _moments(value: object) -> tuple[Array, Array]:
    """Return mean and variance from the record of a `RunningMeanStd`; raise ValueError if they are unusable."""
    state = value.state if isinstance(value, Record) else None
    if not isinstance(state, dict):
        raise ValueError("obs_rms has no mean")
    mean = array_of(state.get("mean"))
    variance = array_of(state.get("var"))
    if mean.shape != variance.shape or not np.isfinite(mean).all() or not (variance >= 0).all():
        raise ValueError("its means and variances do not fit each other")
    return mean, variance


class Scaling(nn.Module):
    """Normalizes observations [B, ...] as `VecNormalize` does."""

    mean: Tensor
    variance: Tensor

    def __init__(
        self,
        moments: tuple[Array, Array],
        clip: float,
        epsilon: float,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(moments[0]))
        self.register_buffer("variance", torch.from_numpy(moments[1]))
        self.clip = clip
        self.epsilon = epsilon

    def forward(self, obs: Tensor) -> Tensor:
        scaled = (obs.double() - self.mean) / torch.sqrt(self.variance + self.epsilon)
        return scaled.clamp(-self.clip, self.clip).float()


class Part(nn.Module):
    """Maps one observation [B, ...] to numbers [B, k]: normalized, one-hot, or through convolutions.

    Args:
        space: the space of the observation.
        scaling: its normalization, or None.
        cnn: the convolutions of an image and the layer after them, or None.
        divide: whether bytes of an image become numbers from 0 to 1.
    """

    def __init__(
        self,
        space: Space,
        scaling: Scaling | None,
        cnn: nn.Module | None,
        divide: bool,
    ) -> None:
        super().__init__()
        self.classes = int(space.n) if isinstance(space, spaces.Discrete) else None
        self.scaling = scaling
        self.cnn = cnn
        shape = space.shape or ()
        image = len(shape) == 3 and space.dtype == np.uint8
        self.divide = image and divide
        #: The smallest dimension of an image has the channels; Stable-Baselines3 puts them first.
        self.channels_last = image and int(np.argmin(shape)) != 0

    def forward(self, obs: Tensor) -> Tensor:
        if self.classes is not None:
            return (obs.reshape(-1, 1) == torch.arange(self.classes)).float()
        obs = obs.float() if self.scaling is None else self.scaling(obs)
        obs = obs.permute(0, 3, 1, 2) if self.channels_last else obs
        obs = obs / 255.0 if self.divide else obs
        return obs.flatten(1) if self.cnn is None else self.cnn(obs)


class Inputs(nn.Module):
    """Maps an observation, which may be a dictionary, to numbers [B, k] in the order of Stable-Baselines3."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        super().__init__()
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def forward(self, obs: Any) -> Tensor:
        if self.keys == [""]:
            return self.parts[0](obs)
        return torch.cat(
            [part(obs[key]) for key, part in zip(self.keys, self.parts, strict=True)], 1
        )


def inputs_of(
    weights: Mapping[str, Tensor],
    prefix: str,
    space: Space,
    options: Mapping[str, Any],
    statistics: Statistics | None,
) -> Inputs:
    """Return the module that prepares the observations of a policy.

    Args:
        weights: the weights of the policy, by name.
        prefix: the start of the names of its features extractor, such as `actor.features_extractor.`.
        space: the observation space of the environment.
        options: the arguments of the policy.
        statistics: the running means and variances of `VecNormalize`, if the model has them.

    Raises:
        UsageError: the extractor has another form, or does not fit the space.
    """
    named = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    unused = {name for name in weights if name.startswith(prefix)}
    divide = bool(options.get("normalize_images", True))
    parts = {}
    for key, part in named.items():
        if not isinstance(part, spaces.Box | spaces.Discrete):
            raise UsageError(f"observations such as {plain(str(part), 100)} cannot be imported")
        start = f"{prefix}extractors.{key}." if key else prefix
        cnn = _nature_cnn(weights, start) if f"{start}cnn.0.weight" in unused else None
        if cnn is not None:
            used = (f"{start}cnn.", f"{start}linear.0.")
            unused -= {name for name in unused if name.startswith(used)}
        parts[key] = Part(part, _scaling(key, part, statistics), cnn, divide)
    if unused:
        raise UsageError(
            f"its features extractor has {plain(min(unused), 100)}; only MlpPolicy, CnnPolicy and MultiInputPolicy "
            "can be imported"
        )
    if statistics is not None and not statistics.moments.keys() <= named.keys():
        raise UsageError("vecnormalize.pkl has means of other observations than the environment")
    return Inputs(parts)


def _scaling(
    key: str,
    space: Space,
    statistics: Statistics | None,
) -> Scaling | None:
    """Return the normalization of one observation, None if the statistics have none for it."""
    if statistics is None or key not in statistics.moments:
        return None
    moments = statistics.moments[key]
    if moments[0].shape != space.shape:
        raise UsageError("the means of vecnormalize.pkl have another shape than the observations")
    return Scaling(moments, statistics.clip, statistics.epsilon)


def _nature_cnn(weights: Mapping[str, Tensor], prefix: str) -> nn.Sequential:
    """Return the convolutions of `NatureCNN` and the layer after them."""
    numbers = {
        int(match[1])
        for name in weights
        if (match := re.match(rf"{re.escape(prefix)}cnn\.(\d+)\.", name))
    }
    if numbers != set(STRIDES):
        raise UsageError(
            "its convolutions are not those of a CnnPolicy; only these can be imported"
        )
    modules: list[nn.Module] = []
    for number, stride in STRIDES.items():
        weight, bias = (weights.get(f"{prefix}cnn.{number}.{part}") for part in ("weight", "bias"))
        if weight is None or bias is None or weight.dim() != 4 or bias.shape != weight.shape[:1]:
            raise UsageError(f"it has no convolution {prefix}cnn.{number}")
        size = (weight.shape[2], weight.shape[3])
        layer = nn.Conv2d(weight.shape[1], weight.shape[0], size, stride)
        fill(layer, weight, bias)
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules, nn.Flatten(), linear(weights, f"{prefix}linear.0"), nn.ReLU())


def linear(weights: Mapping[str, Tensor], place: str) -> nn.Linear:
    """Return the dense layer at a place in the weights; raise UsageError if there is none."""
    weight, bias = (weights.get(f"{place}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.dim() != 2 or bias.shape != weight.shape[:1]:
        raise UsageError(
            f"it has no layer {plain(place, 100)}; only MlpPolicy, CnnPolicy and MultiInputPolicy can be imported"
        )
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    fill(layer, weight, bias)
    return layer


def fill(layer: nn.Linear | nn.Conv2d, weight: Tensor, bias: Tensor) -> None:
    """Copy weights into a layer."""
    with torch.no_grad():
        layer.weight.copy_(weight)
        assert layer.bias is not None
        layer.bias.copy_(bias)
