"""Forward passes through torch: for all networks that the fast room does not know, and for all on a GPU."""

from __future__ import annotations

import torch
from torch import nn

from rlplug_core.arrays import is_on_device, to_device
from rlplug_core.batches import to_tensors
from rlplug_core.types import Array, Obs, first_leaf


class TorchForward:
    """Through torch, without gradients: arrays to arrays on the host, tensors to tensors on their device."""

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device

    def __call__(self, obs: Obs, *further: Array) -> Array:
        """`further` arrays are passed on, such as noise."""
        if is_on_device(obs):
            tensor: Array = self._on_device(obs, *further)
            return tensor
        with torch.inference_mode():
            outputs: Array = (
                self.module(*(to_tensors(one, self.device) for one in (obs, *further)))
                .cpu()
                .numpy()
            )
        return outputs

    @torch.no_grad()  # losses may need the result, which inference mode forbids
    def _on_device(self, obs: Obs, *further: object) -> Obs:
        """Return outputs [B, ...] on the device of the observations."""
        outputs = self.module(*(to_device(one, self.device) for one in (obs, *further)))
        return outputs.to(first_leaf(obs).device)
