"""`FastTensor`: a NumPy array with a gradient, for fast computation of losses.

It has torch's functions and methods (`__torch_function__`), so a loss written for tensors runs on it unchanged. A
function that it does not have raises `NoFastPath` with the function's name, and autograd computes the loss instead.
Tests compare values and gradients with autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor, is_grad_enabled, nn

from rlplug_core.accelerator import OVERRIDING, Function
from rlplug_core.fast.dispatch import FUNCTIONS, find, name_of
from rlplug_core.fast.elementwise import Elementwise
from rlplug_core.fast.gradients import Backward, Gradients, NoFastPath, add_absent_attributes
from rlplug_core.fast.reductions import Reductions
from rlplug_core.types import Array

#: An operand: a FastTensor, a tensor or a number.
Operand: TypeAlias = "FastTensor | Tensor | float"

DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
}


class FastTensor(Elementwise, Reductions):
    """An array [...] with a gradient, torch's arithmetic and the attributes of a tensor."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        return self.backward_of is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.value.dtype]

    is_cpu = True

    def __len__(self) -> int:
        return len(self.value)

    def numel(self) -> int:
        return self.value.size

    def dim(self) -> int:
        return self.value.ndim

    def size(self, axis: int | None = None) -> int | tuple[int, ...]:
        return self.value.shape if axis is None else self.value.shape[axis]

    def detach(self) -> FastTensor:
        """Return the values without a gradient."""
        return self if self.backward_of is None else FastTensor(self.value)

    def __bool__(self) -> NoReturn:
        raise NoFastPath("a branch on the values of a tensor")

    def __iter__(self) -> NoReturn:
        raise NoFastPath("a loop over a tensor")

    __float__ = __int__ = __bool__

    def __array_ufunc__(
        self,
        function: object,
        *_: object,
        **__: object,
    ) -> NoReturn:
        raise NoFastPath(f"numpy.{getattr(function, '__name__', function)}")

    @classmethod
    def __torch_function__(
        cls,
        function: Function,
        types: object,
        args: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
    ) -> Any:
        """Compute a function of torch, or one that is marked `overridable`."""
        fast = FUNCTIONS.get(function) or find(function, FastTensor)
        try:
            result = fast(*args, **named) if named else fast(*args)
            if result is NotImplemented:
                plain: Any = function
                return plain.__wrapped__(*args, **named or {})
            return result
        except TypeError as error:
            raise NoFastPath(f"{name_of(function)} with these arguments ({error})") from error

    # Most operations have a constant operand: for these `_linear` takes half of the time of `_binary`.

    def __add__(self, other: Operand) -> FastTensor:
        kind = other.__class__
        if kind is not FastTensor and kind is not float and kind is not int:
            other = operand(other)
        if other.__class__ is not FastTensor:
            return self._linear(self.value + other, _pass_gradient)
        value = self.value + other.value
        if other.backward_of is None:
            return self._linear(value, _pass_gradient)
        return _binary(value, self, other, lambda g, into: (g, g))

    __radd__ = __add__

    def __sub__(self, other: Operand) -> FastTensor:
        kind = other.__class__
        if kind is not FastTensor and kind is not float and kind is not int:
            other = operand(other)
        if other.__class__ is not FastTensor:
            return self._linear(self.value - other, _pass_gradient)
        value = self.value - other.value
        if other.backward_of is None:
            return self._linear(value, _pass_gradient)
        return _binary(value, self, other, lambda g, into: (g, -g))

    def __rsub__(self, other: Operand) -> FastTensor:
        other = operand(other)
        if other.__class__ is FastTensor:
            return other - self
        return self._linear(other - self.value, lambda g, into: (-g,))

    def __mul__(self, other: Operand) -> FastTensor:
        kind = other.__class__
        if kind is not FastTensor and kind is not float and kind is not int:
            other = operand(other)
        left = self.value
        if other.__class__ is not FastTensor:
            if other == 0 and other.__class__ is float:  # else 0 times an infinite gradient is NaN
                return FastTensor(left * other)
            return self._linear(left * other, lambda g, into: (g * other,))
        right = other.value
        if other.backward_of is None:
            return self._linear(left * right, lambda g, into: (g * right,))
        if self.backward_of is None:
            return other * self
        return _binary(left * right, self, other, lambda g, into: (g * right, g * left))

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> FastTensor:
        other = operand(other)
        if other.__class__ is not FastTensor:
            return self._linear(self.value / other, lambda g, into: (g / other,))
        divisor = other.value
        value = self.value / divisor
        if other.backward_of is None:
            return self._linear(value, lambda g, into: (g / divisor,))
        return _binary(value, self, other, lambda g, into: (g / divisor, g * (-value / divisor)))

    def __rtruediv__(self, other: Operand) -> FastTensor:
        other = operand(other)
        if other.__class__ is FastTensor:
            return other / self
        divisor = self.value
        value = other / divisor
        return self._linear(value, lambda g, into: (g * (-value / divisor),))

    def __matmul__(self, other: Operand) -> FastTensor:
        if self.backward_of is not None or getattr(other, "requires_grad", False):
            raise NoFastPath("a matrix product with a gradient")
        return FastTensor(np.asarray(self.value.dot(array_of(other))))

    def dot(self, other: Operand) -> FastTensor:
        """Compute the sum of products of two vectors [B]."""
        if other.__class__ is not FastTensor:
            other = operand(other)
        if other.__class__ is not FastTensor:
            raise TypeError("dot of a number")
        left = self.value
        right = other.value
        value = left.dot(right)
        if other.backward_of is not None:
            return _binary(value, self, other, lambda g, into: (g * right, g * left))
        if self.backward_of is None:
            return FastTensor(value)
        return self.result(value, lambda g, into: (g * right,))

    def minimum(self, other: Operand) -> FastTensor:
        """Compute the minimum; equal values get half of the gradient each."""
        other = operand(other)
        return self._choose(np.minimum, other, lambda: _share(raw(other) - self.value))

    def maximum(self, other: Operand) -> FastTensor:
        """Compute the maximum; equal values get half of the gradient each."""
        other = operand(other)
        return self._choose(np.maximum, other, lambda: _share(self.value - raw(other)))

    def _choose(
        self,
        function: Callable[[Any, Any], Array],
        other: Any,
        share_of: Callable[[], Array],
    ) -> FastTensor:
        """Return the smaller or the larger of two values; `share_of` computes this array's share of the gradient."""
        value = function(self.value, raw(other))
        if other.__class__ is not FastTensor or other.backward_of is None:
            return self._linear(value, lambda g, into: (g * share_of(),))

        def backward(gradient: Array, into: Gradients) -> tuple[Array, Array]:
            share = share_of()
            return gradient * share, gradient * (1 - share)

        return _binary(value, self, other, backward)

    def _linear(
        self,
        value: Array,
        backward: Callable[[Array, Gradients], tuple[Array]],
    ) -> FastTensor:
        """Return a function's result for this array and a constant; `backward` is for operands of the same shape."""
        if self.backward_of is None or not is_grad_enabled():
            return FastTensor(value)
        shape = self.value.shape
        if value.shape == shape:
            return FastTensor(value, (self,), backward)
        return FastTensor(
            value, (self,), lambda g, into: (sum_to_shape(backward(g, into)[0], shape),)
        )

    def mean(self, dim: int | None = None) -> FastTensor:
        """Compute the mean along one axis, or of all values."""
        return self.sum(dim) / (self.value.size if dim is None else self.value.shape[dim])

    def gather(self, dim: int, index: Operand) -> FastTensor:
        """Take one value of each row along the last axis of [..., n]."""
        if dim not in (-1, self.value.ndim - 1):
            raise NoFastPath("gather along another axis than the last one")
        return self.take_along_rows(array_of(index))

    def __lt__(self, other: Operand) -> FastTensor:
        return FastTensor(np.less(self.value, array_of(other)))

    def __le__(self, other: Operand) -> FastTensor:
        return FastTensor(np.less_equal(self.value, array_of(other)))

    def __gt__(self, other: Operand) -> FastTensor:
        return FastTensor(np.greater(self.value, array_of(other)))

    def __ge__(self, other: Operand) -> FastTensor:
        return FastTensor(np.greater_equal(self.value, array_of(other)))

    def __eq__(self, other: Any) -> FastTensor:  # type: ignore[override]  # as torch's
        return FastTensor(np.equal(self.value, array_of(other)))

    def __ne__(self, other: Any) -> FastTensor:  # type: ignore[override]  # as torch's
        return FastTensor(np.not_equal(self.value, array_of(other)))

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> FastTensor:
        items = index if isinstance(index, tuple) else (index,)
        if not all(item is None or item is ... or isinstance(item, int | slice) for item in items):
            raise NoFastPath("an index that is not a slice")
        before = self.value

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.zeros_like(before)
            below[index] = gradient
            return (below,)

        return self.result(np.asarray(before[index]), backward)

    def chunk(self, chunks: int, dim: int = 0) -> list[FastTensor]:
        """Split the last axis into equal parts."""
        width, rest = divmod(self.value.shape[-1], chunks)
        if dim not in (-1, self.value.ndim - 1) or rest:
            raise NoFastPath("chunk along another axis than the last one, or into unequal parts")
        return [self[..., width * part : width * (part + 1)] for part in range(chunks)]

    def to(self, dtype: torch.dtype) -> FastTensor:
        """Cast an array without a gradient to a type."""
        if dtype == self.dtype:
            return self
        kind: Any = next((kind for kind, torch_type in DTYPES.items() if torch_type == dtype), None)
        if self.backward_of is not None or kind is None:
            raise NoFastPath("a cast of a tensor with a gradient, or to another type or device")
        return FastTensor(self.value.astype(kind))


add_absent_attributes(FastTensor)
OVERRIDING[FastTensor] = FastTensor.__torch_function__


def operand(value: object) -> Any:
    """Return an operand: a FastTensor or a number. A tensor with a gradient becomes a FastTensor with one."""
    kind = value.__class__
    if kind is FastTensor or kind is float or kind is int:
        return value
    if isinstance(value, Tensor):
        return from_tensor(value)
    if isinstance(value, np.ndarray | np.number | bool):
        return FastTensor(np.asarray(value))
    raise NoFastPath(f"an operand of type {type(value).__name__}")


def raw(value: object) -> Any:
    """Return the array of a FastTensor; a number is returned unchanged."""
    return value.value if value.__class__ is FastTensor else value


def array_of(constant: Operand) -> Array:
    """Return the array of a tensor or FastTensor, without its gradient."""
    return constant.value if constant.__class__ is FastTensor else raw(operand(constant))


def from_tensor(tensor: Tensor) -> FastTensor:
    """Return a tensor as a FastTensor; if it is a parameter, gradients reach it.

    Raises:
        NoFastPath: autograd computed the tensor, or NumPy cannot read it.
    """
    try:
        if not tensor.requires_grad:
            return FastTensor(tensor.numpy())
        value = tensor.detach().numpy()
    # A tensor on another device, or inside `torch.func` transforms.
    except (RuntimeError, TypeError) as error:
        raise NoFastPath("a tensor that NumPy cannot read") from error
    if not is_grad_enabled():
        return FastTensor(value)
    if not isinstance(tensor, nn.Parameter):
        raise NoFastPath("a tensor that autograd computed")
    parameter = tensor

    def backward(gradient: Array, into: Gradients) -> tuple[()]:
        into.add(parameter, sum_to_shape(gradient, value.shape))
        return ()

    return FastTensor(value, (), backward)


def _binary(
    value: Array,
    first: FastTensor,
    second: FastTensor,
    backward: Backward,
) -> FastTensor:
    """Return the result of a function of two arrays, the second one with a gradient.

    Args:
        value: the result.
        first, second: the operands. Gradients of broadcast operands are summed over the broadcast axes.
        backward: computes the gradients of both, for operands of the same shape.
    """
    if not is_grad_enabled():
        return FastTensor(value)
    shapes = first.value.shape, second.value.shape
    if first.backward_of is None:
        return FastTensor(
            value, (second,), lambda g, into: (sum_to_shape(backward(g, into)[1], shapes[1]),)
        )
    if shapes[0] == shapes[1] == value.shape:
        return FastTensor(value, (first, second), backward)
    return FastTensor(
        value, (first, second), lambda g, into: tuple(map(sum_to_shape, backward(g, into), shapes))
    )


def _pass_gradient(gradient: Array, into: Gradients) -> tuple[Array]:
    return (gradient,)


def _share(difference: Array) -> Array:
    """Return a share of the gradient: 1 for a positive difference, 0 for a negative one, a half for 0."""
    share: Array = np.sign(difference)
    share += 1
    share *= 0.5
    return share


def sum_to_shape(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the axes along which an operand of this shape was broadcast."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    summed: Array = gradient.sum(tuple(range(extra))) if extra > 0 else gradient
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and summed.shape[axis] != 1)
    return summed.sum(axes, keepdims=True) if axes else summed
