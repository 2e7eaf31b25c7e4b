"""Functions of each number of a `FastTensor`, by torch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

import numpy as np

from rlplug_core.fast.gradients import NoFastPath
from rlplug_core.fast.node import Node
from rlplug_core.types import Array

#: The type `float`: in the class below, `float` is a method.
Number: TypeAlias = float


class Elementwise(Node):
    """Functions of each number. Derivatives are computed in the backward pass only."""

    __slots__ = ()

    def unary(self, value: Array, derivative: Callable[[], Array]) -> Self:
        """Return the result `value` of a function of this array; `derivative` computes its derivative."""
        return self.result(value, lambda gradient, into: (gradient * derivative(),))

    def exp(self) -> Self:
        value = np.exp(self.value)
        return self.result(value, lambda gradient, into: (gradient * value,))

    def log(self) -> Self:
        value = self.value
        return self.unary(np.log(value), lambda: 1 / value)

    def sqrt(self) -> Self:
        value = np.sqrt(self.value)
        return self.unary(value, lambda: 0.5 / value)

    def square(self) -> Self:
        value = self.value
        return self.result(np.square(value), lambda gradient, into: (gradient * (2 * value),))

    def abs(self) -> Self:
        value = self.value
        # 0 for NaN, as in torch
        return self.unary(np.abs(value), lambda: (value > 0).astype(value.dtype) - (value < 0))

    __abs__ = abs

    def tanh(self) -> Self:
        value = np.tanh(self.value)
        return self.unary(value, lambda: 1 - value * value)

    def __pow__(self, exponent: Number) -> Self:
        if not isinstance(exponent, int | float):
            raise NoFastPath("a power with an exponent that is not a number")
        value = self.value
        return self.unary(value**exponent, lambda: exponent * value ** (exponent - 1))

    def __neg__(self) -> Self:
        return self.result(-self.value, lambda gradient, into: (-gradient,))

    def clamp(
        self,
        min: Number | None = None,
        max: Number | None = None,
    ) -> Self:  # torch's names
        """Limit values to bounds; a value at a bound keeps its gradient."""
        for bound in (min, max):
            if bound is not None and not isinstance(bound, int | float):
                raise NoFastPath("a clamp with bounds that are not numbers")
        before = self.value
        value = before if min is None else np.maximum(before, min)
        value = value if max is None else np.minimum(value, max)
        return self.unary(value, lambda: value == before)

    clip = clamp

    def float(self) -> Self:
        if self.value.dtype == np.float32:
            return self
        if self.backward_of is not None:
            raise NoFastPath("a cast of a tensor with a gradient")
        return self.constant(self.value.astype(np.float32))

    def long(self) -> Self:
        return self.constant(self.value.astype(np.int64))

    def xlogy(self, other: Self) -> Self:
        """Compute x log y, 0 if x is 0."""
        if self.backward_of is not None or other.backward_of is not None:
            raise NoFastPath("xlogy with a gradient")
        safe = np.where(self.value > 0, other.value, other.value.dtype.type(1))
        return self.constant(self.value * np.log(safe))
