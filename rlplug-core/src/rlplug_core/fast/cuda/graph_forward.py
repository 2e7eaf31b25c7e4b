"""Forward passes of a network on a GPU as CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.batches import to_tensors
from rlplug_core.fast.cuda.cuda_graph import WARM, CudaGraph
from rlplug_core.nets.forward import TorchForward
from rlplug_core.types import Array, Obs

#: The largest number of shapes of observations that are recorded: acting, evaluations and rollouts have one each.
SHAPES = 8


class GraphForward:
    """A network on a GPU: torch computes the first passes of each shape of observations, then a CUDA graph.

    Observations that are tensors or dictionaries, and passes with further arguments, are not recorded.
    """

    backend = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.plain = TorchForward(module)
        self.passes: dict[object, int] = {}
        #: For each shape, the tensor that the graph reads, and the graph.
        self.graphs: dict[object, tuple[Tensor, CudaGraph[Tensor]]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the graphs: a copy has its own network."""
        return {**self.__dict__, "graphs": {}, "passes": {}}

    def __call__(self, obs: Obs, *others: Array) -> Array:
        if others or not isinstance(obs, np.ndarray):
            return self.plain(obs, *others)
        kind = obs.shape, obs.dtype
        graph = self.graphs.get(kind)
        if graph is None:
            if len(self.graphs) < SHAPES:
                self.passes[kind] = self.passes.get(kind, 0) + 1
            if len(self.graphs) == SHAPES or self.passes[kind] <= WARM:
                return self.plain(obs)
            graph = self.graphs[kind] = self._record(obs)
        inputs, recorded = graph
        inputs.copy_(torch.from_numpy(obs), non_blocking=True)
        return recorded.replay().cpu().numpy()

    def _record(self, obs: Array) -> tuple[Tensor, CudaGraph[Tensor]]:
        inputs: Any = to_tensors(obs, self.plain.device)
        if inputs.device.type == "cpu":  # else the next call would write into the caller's array
            inputs = inputs.clone()

        def body() -> Tensor:
            with torch.no_grad():
                outputs: Tensor = self.plain.module(inputs)
            return outputs

        return inputs, CudaGraph(body, self.plain.device)
