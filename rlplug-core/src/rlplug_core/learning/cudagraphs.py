"""`replayed`: compile a loss so that a GPU gets it, and its gradient, as one recorded CUDA graph each."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

P = ParamSpec("P")
R = TypeVar("R")

#: What `mode="reduce-overhead"` stands for, and one thing more. A number on the host, such as an option that follows a
#: schedule, is part of a recorded kernel: in one piece, torch records nothing of a loss that has one, and in partitions
#: it would record the rest.
OPTIONS: dict[str, str | int | bool | Callable[..., object]] = {"triton.cudagraphs": True, "graph_partition": False}


def replayed(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled into CUDA graphs; what torch does not record runs compiled (`TORCH_LOGS=cudagraphs`).

    The next call overwrites what a graph returned, but metrics are kept for many updates. So tensors leave as copies,
    alone or in tuples, lists and dictionaries. No step is marked: torch begins one with every call, unless a gradient
    is still due, so an update may take several losses, and a loss may come before the gradient of another.
    """
    compiled = torch.compile(function, options=OPTIONS)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = tree_map_only(Tensor, torch.clone, compiled(*args, **kwargs))
        return result

    return call
