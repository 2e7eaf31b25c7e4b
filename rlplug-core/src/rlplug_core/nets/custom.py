"""Networks by name: the function `net.factory`, a user's own or a plugin's, makes the module that replaces the encoder.

    def make(space, net):
        return MyNetwork(space, net), 128       # a module, and its number of features

The module takes observations as tensors [B, ...] of the space's dtype (a dictionary of them for a Dict space), and
returns float32 features [B, F]. With an attribute `takes_actions = True` it also reads the actions in critics of
continuous actions: these give it a Dict space with `obs` and `action`.
"""

from __future__ import annotations

from dataclasses import replace

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.config.import_string import describe
from rlplug_core.errors import PluginError, RlplugError
from rlplug_core.named_parts import build_part, part_code
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import ObservationNorm
from rlplug_core.types import Space


def custom(
    space: Space,
    net: Net,
    norm: ObservationNorm | None = None,
) -> tuple[nn.Module, int]:
    """Call the factory for a space and try its module on two observations; return it and its number of features.

    With a `norm` the two observations are normalized first.

    Raises:
        UsageError: the file, module or plugin does not exist. PluginError: the function does not exist, it raised, or
            its module does not turn two observations into float32 features [2, F].
    """
    name = f"the network '{net.factory}'"
    result = build_part("network", str(net.factory), space, replace(net, factory=None))
    match result:
        case (nn.Module() as module, int() as features) if features > 0:
            _check_forward(name, module, features, space, norm)
            return module, features
    raise PluginError(
        f"{name} is not a network: it returned {describe_kind(result)}; return (module, features), an nn.Module "
        "and the number of features that it gives"
    )


def reads_actions(factory: str) -> bool:
    """Return whether a network by name reads observations and actions together; raise as `custom` does."""
    return bool(getattr(part_code("network", factory), "takes_actions", False))


def _check_forward(
    name: str,
    module: nn.Module,
    features: int,
    space: Space,
    norm: ObservationNorm | None,
) -> None:
    with torch.no_grad():
        example = zeros(space, 2) if norm is None else norm(zeros(space, 2))
        try:
            output: object = module(example)
        except RlplugError:
            raise
        except Exception as error:  # a user's own code may raise anything
            raise PluginError(
                f"{name} cannot take observations in {space}: {describe(error)}; --traceback shows where"
            ) from error
    if not isinstance(output, Tensor):
        raise PluginError(
            f"{name} gives {describe_kind(output)} instead of a tensor of features [B, {features}]"
        )
    if output.shape != (2, features) or output.dtype != torch.float32:
        raise PluginError(
            f"{name} turns 2 observations into {list(output.shape)} of {output.dtype} instead of [2, {features}] of "
            f"torch.float32, for the {features} features that its factory names; return the right number, or flatten"
        )


def zeros(space: Space, num_envs: int) -> object:
    """Return `num_envs` observations of a space as a network gets them: zeros, or the least value of the space."""
    if isinstance(space, spaces.Dict):
        return {name: zeros(part, num_envs) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return torch.full((num_envs,), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return torch.from_numpy(np.repeat(space.start[None], num_envs, 0).astype(space.dtype))
    return torch.from_numpy(np.zeros((num_envs, *(space.shape or ())), space.dtype))


def describe_kind(value: object) -> str:
    """Describe the kind of an object in a few words."""
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return type(value).__name__
