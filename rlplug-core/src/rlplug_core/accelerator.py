"""The only link to the fast room: plain code marks functions here, and the fast room may compute them differently.

    @overridable        another array type may compute it, as with torch's functions (`__torch_function__`)
    @network            the same for a network's forward: the fast room records it once and replays it
    @kernel             the fast room may have a faster version for some arguments

Without the fast room every function computes in torch. Plain code never asks for the kind of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

import torch
from torch import nn
from torch.compiler import is_compiling

from rlplug_core.types import Array, Obs

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: Any function.
Function: TypeAlias = Callable[..., Any]

#: The types that compute functions in their own way, each with its `__torch_function__`.
OVERRIDING: dict[type, Function] = {}
#: The functions that are marked `network`.
NETWORKS: set[Function] = set()


class Forward(Protocol):
    """A forward pass on the host, without a gradient: maps observations [B, ...] to an array of outputs."""

    backend: str

    def __call__(self, obs: Obs) -> Array: ...


class Losses(Protocol):
    """Runs the losses of one learner.

    Attributes:
        paths: for each loss by name, how its gradient was computed and why.
        autograd_only: names of losses that autograd computes from now on; a part of the learner's state.
    """

    paths: dict[str, str]
    autograd_only: set[str]

    def call(
        self,
        loss: Callable[..., T],
        learner: nn.Module,
        *args: object,
        **named: object,
    ) -> T:
        """Return the result of `loss` for the learner and these arguments."""

    def without_gradient(
        self,
        function: Callable[..., T],
        learner: nn.Module,
        *args: object,
        **named: object,
    ) -> T:
        """Return the result of a function without a gradient, such as metrics, for the learner and these arguments."""

    def compiled(
        self,
        loss: Callable[..., T],
        learner: nn.Module,
        *args: object,
        **named: object,
    ) -> T:
        """Return the result of a compiled loss for the learner and these arguments."""


class Room(Protocol):
    """The fast room, as plain code sees it."""

    @property
    def kernels(self) -> Mapping[Function, Function]:
        """Return, for functions that are marked `kernel`, versions that may return NotImplemented."""

    def losses(self) -> Losses:
        """Return the object that runs the losses of a new learner."""

    def graphs(self, device: torch.device) -> Any:
        """Return the object that records gradient steps as CUDA graphs."""

    def record(self, optimizer: Any, graphs: Any) -> None:
        """Prepare an optimizer so that its steps can be recorded, if that is possible."""

    def forward(
        self,
        module: nn.Module,
        inference_backend: str,
    ) -> Forward | None:
        """Return a fast forward pass of a module, or None if torch has to compute it."""

    def loop_library(self) -> str:
        """Return the libraries that compute loops; runs record it, because results differ in the last bits."""

    def warm_up(self) -> None:
        """Load compiled loops, so that child processes share their memory."""


def overridable(function: Callable[P, R]) -> Callable[P, R]:
    """Let types with `__torch_function__` compute a function of tensors in their own way."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        for kind in map(type, args):  # torch's own `handle_torch_function` takes ten times as long
            if kind in OVERRIDING:
                return OVERRIDING[kind](call, (), args, named)
        return function(*args, **named)

    return call


def network(forward: Callable[P, R]) -> Callable[P, R]:
    """Let the fast room record a network's forward once and replay it.

    Args:
        forward: a method of a module; its first argument [B, ...] is the features, a second one is noise [size].
    """
    call = overridable(forward)
    NETWORKS.add(call)
    return call


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Let the fast room compute a function if it has a faster version for the arguments."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        if is_compiling():
            return function(*args, **named)
        faster = room().kernels.get(call)
        result: Any = NotImplemented if faster is None else faster(*args, **named)
        return function(*args, **named) if result is NotImplemented else result

    return call


@cache
def room() -> Room:
    """Return the fast room. It is above the plain rooms, so it is imported when it is first needed."""
    from rlplug_core.fast.room import FastRoom

    return FastRoom()
