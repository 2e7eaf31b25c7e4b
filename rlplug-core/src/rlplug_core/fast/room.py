"""`FastRoom`: the fast room, as `accelerator.room` returns it to plain code."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rlplug_core.accelerator import Forward
from rlplug_core.fast import numba_loops
from rlplug_core.fast.closed_forms import CLOSED_FORMS
from rlplug_core.fast.cuda.device_step import DeviceStep
from rlplug_core.fast.cuda.graphs import Graphs
from rlplug_core.fast.dispatch import FUNCTIONS
from rlplug_core.fast.forward import forward
from rlplug_core.fast.kernels import KERNELS
from rlplug_core.fast.losses import FastLosses
from rlplug_core.learning.optimizer import Optimizer


class FastRoom:
    """Kernels, losses, forward passes and CUDA graphs."""

    kernels = KERNELS

    def __init__(self) -> None:
        FUNCTIONS.update(CLOSED_FORMS)

    def losses(self) -> FastLosses:
        return FastLosses()

    def graphs(self, device: torch.device) -> Graphs:
        return Graphs(device)

    def record(self, optimizer: Optimizer, graphs: Graphs) -> None:
        if optimizer.recordable:
            optimizer.on_device = DeviceStep(optimizer, graphs)

    def forward(
        self,
        module: nn.Module,
        inference_backend: str,
    ) -> Forward | None:
        return forward(module, inference_backend)

    def loop_library(self) -> str:
        return numba_loops.loop_library()

    def warm_up(self) -> None:
        """Call a loop: numba's first call loads 40 MiB."""
        learning = numba_loops.loop_module("learning")
        if learning is not None and numba_loops.loop_module("acting") is not None:
            numbers = np.zeros(1, np.float32)
            learning.polyak(numbers, numbers, 0.0)
