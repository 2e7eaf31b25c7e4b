"""Forward passes through torch: for all networks that the fast room does not know, and for all on a GPU."""

from __future__ import annotations

import torch
from torch import nn

from rlplug_core.batches import to_tensors
from rlplug_core.types import Array, Obs


class TorchForward:
    """Through torch, without gradients, to the host."""

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.device = next(module.parameters()).device

    def __call__(self, obs: Obs, *further: Array) -> Array:
        """`further` arrays are passed on, such as noise."""
        with torch.inference_mode():
            outputs: Array = (
                self.module(*(to_tensors(one, self.device) for one in (obs, *further)))
                .cpu()
                .numpy()
            )
        return outputs
