"""Forward passes through torch: for all networks that the fast room does not know, and for all on a GPU."""

from __future__ import annotations

from torch import nn

from rlplug_core.arrays import like_inputs, no_gradient, to_device
from rlplug_core.types import Array, Obs


class TorchForward:
    """Through torch, without gradients: arrays to arrays on the host, tensors to tensors on their device."""

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device

    def __call__(self, obs: Obs, *further: Array) -> Array:
        """`further` arrays are passed on, such as noise."""
        with no_gradient(obs):
            inputs = (to_device(one, self.device) for one in (obs, *further))
            outputs: Array = like_inputs(self.module(*inputs), obs)
        return outputs
