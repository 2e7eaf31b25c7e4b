"""Gradients of parameters as arrays, and the exception for functions and attributes without a fast version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from torch import Tensor, nn

from rlplug_core.types import Array


class NoFastPath(Exception):
    """Raised for a function that has no fast version; the message names it."""


class Gradients(dict[nn.Parameter, Array]):
    """The gradient of each parameter, as arrays that backward passes add to.

    Attributes:
        every: the `id`s of the parameters.
        zero: the `id`s of parameters with a gradient that is still zero; a backward pass may write it instead of adding
            to it, which is faster. Code that changes an array removes its parameter from this set.
    """

    def __init__(self, arrays: Mapping[nn.Parameter, Array]) -> None:
        super().__init__(arrays)
        self.every = frozenset(map(id, self))
        self.zero: set[int] = set(self.every)

    def add(self, parameter: nn.Parameter, gradient: Array) -> None:
        """Add a gradient to the array of a parameter, if it has one."""
        if parameter in self:
            self[parameter][...] += gradient
            self.zero.discard(id(parameter))


#: Computes the gradients of a function's sources from the gradient of its result.
Backward: TypeAlias = Callable[[Array, Gradients], Sequence[Array]]

T = TypeVar("T")
#: The largest number of entries in the cache of a `PerGradient`, which has one for each optimizer.
CACHE_SIZE = 8


class PerGradient(Generic[T]):
    """Caches a function of `Gradients`; an optimizer passes the same object at each update."""

    def __init__(self, find: Callable[[Gradients], T]) -> None:
        self.find = find
        self.cache: dict[int, tuple[Gradients, T]] = {}

    def __call__(self, into: Gradients) -> T:
        entry = self.cache.get(id(into))
        if entry is None or entry[0] is not into:
            if len(self.cache) == CACHE_SIZE:
                self.cache.clear()
            entry = self.cache[id(into)] = into, self.find(into)
        return entry[1]


class Absent:
    """An attribute of tensors that FastTensors do not have: reading it raises `NoFastPath`.

    A method `__getattr__` would do the same, but it makes Python read every attribute of the class more slowly.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Absent:
        if instance is None:
            return self
        raise NoFastPath(f"Tensor.{self.name}")


def add_absent_attributes(kind: type) -> None:
    """Let each attribute of tensors that a class does not have raise `NoFastPath`."""
    for name in dir(Tensor):
        if not name.startswith("__") and not hasattr(kind, name):
            setattr(kind, name, Absent(name))
