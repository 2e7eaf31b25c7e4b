"""`Node`: an array, the arrays it was computed from, and the backward pass to them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Self

from torch import is_grad_enabled

from rlplug_core.fast.gradients import Backward, Gradients
from rlplug_core.types import Array

_numbers = count()


class Node:
    """An array [...]; the result of a differentiable function also has `backward_of`, its sources and a number."""

    __slots__ = ("backward_of", "number", "sources", "value")

    def __init__(
        self,
        value: Array,
        sources: Sequence[Self] = (),
        backward_of: Backward | None = None,
    ) -> None:
        self.value = value
        self.sources = sources
        self.backward_of = backward_of
        if backward_of is not None:
            self.number = next(_numbers)

    def constant(self, value: Array) -> Self:
        """Return a value without a gradient."""
        return self.__class__(value)

    def result(self, value: Array, backward: Backward) -> Self:
        """Return a value that was computed from this array only; `backward` computes the gradient of this array."""
        if self.backward_of is None or not is_grad_enabled():
            return self.__class__(value)
        return self.__class__(value, (self,), backward)

    def backward_into(self, into: Gradients) -> None:
        """Add the gradient of this scalar to the arrays of the parameters in `into`."""
        node: Node = self
        gradient: Array = self.value.dtype.type(1)
        waiting: dict[int, tuple[Node, Array]] = {}
        highest = -1  # the largest number in `waiting`
        while True:
            assert node.backward_of is not None
            sources = node.sources
            gradients = node.backward_of(gradient, into)
            # Results have larger numbers than their sources, so all gradients of a source are added before its turn.
            if len(sources) == 1 and sources[0].number > highest:
                node = sources[0]
                gradient = gradients[0]
                continue
            for source, below in zip(sources, gradients, strict=True):
                number = source.number
                if number in waiting:
                    below = waiting[number][1] + below
                waiting[number] = source, below
            if not waiting:
                return
            node, gradient = waiting.pop(max(waiting))
            highest = max(waiting, default=-1)
